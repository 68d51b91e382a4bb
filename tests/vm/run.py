#!/usr/bin/env python3
"""Boots a Debian 12 virtual machine, installs a package in it and runs tests/vm/guest/suite.sh there.

  run.py --deb FILE --results FOLDER [--cache FOLDER] [--seconds N] [--cpus N] [--build-only]

The image is made once and kept below the cache, by a hash of its recipe. Nothing is written to it: each run sees it
as it was made. The machine has no network. The package goes in, and the reports come out, as tar archives on disks of
their own. FOLDER gets vm.xml (JUnit) and vm/: a log for each case, the journal, the boot console.
"""
import argparse
import fcntl
import hashlib
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))
import junit  # noqa: E402

RESULTS_BYTES = 64 << 20


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def image(cache):
    """The folder of the image; made when it is not there, by one at a time."""
    recipe = HERE / "image.sh"
    folder = cache / f"vm-{hashlib.sha256(recipe.read_bytes()).hexdigest()[:16]}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "vm.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        say(f"making the image in {folder} (some minutes, once)")
        began = time.monotonic()
        for old in cache.glob("vm-*"):
            shutil.rmtree(old)
        unfinished = pathlib.Path(tempfile.mkdtemp(prefix="making-", dir=cache))
        try:
            log = cache / "vm-image.log"
            with open(log, "wb") as out:
                made = subprocess.run([str(recipe), str(unfinished)], stdin=subprocess.DEVNULL, stdout=out,
                                      stderr=subprocess.STDOUT)
            if made.returncode != 0:
                print(log.read_text(errors="replace")[-3000:], file=sys.stderr)
                raise SystemExit(f"the image could not be made; all of it: {log}")
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        say(f"image made in {time.monotonic() - began:.0f} s")
    return folder


def pack(deb, target):
    with tarfile.open(target, "w") as tar:
        for path in sorted((HERE / "guest").iterdir()):
            tar.add(path, path.name)
        tar.add(deb, "agentmon.deb")
    # A disk is whole sectors.
    os.truncate(target, (target.stat().st_size + 1048575) // 1048576 * 1048576)


def command(folder, work, cpus):
    words = ["qemu-system-x86_64", "-machine", "pc", "-smp", str(cpus), "-m", "1024", "-display", "none", "-nic", "none",
             "-no-reboot", "-monitor", "none", "-nodefaults"]
    # Emulated even where there is a /dev/kvm: one below another hypervisor may stop in the middle of a boot.
    accelerated = os.environ.get("AGENTMON_VM_KVM") == "1"
    words += ["-accel", "kvm", "-cpu", "host"] if accelerated else ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"]
    for path, rest in ((folder / "disk.img", "snapshot=on"), (work / "payload.tar", "readonly=on"),
                       (work / "results.tar", "cache=unsafe")):
        words += ["-drive", f"if=virtio,format=raw,file={path},{rest}"]
    words += ["-kernel", str(folder / "vmlinuz"), "-initrd", str(folder / "initrd.img"),
              # no_timer_check: on a busy host the emulated timer is late, and the kernel takes it for broken.
              "-append", "root=/dev/vda rw console=ttyS0 quiet no_timer_check mitigations=off panic=-1",
              "-serial", f"file:{work / 'console.txt'}", "-serial", "stdio"]
    return words


def lines_of(process, deadline):
    """Lines of its output until it ends; None once when the deadline has passed."""
    rest = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            yield None
            return
        if not select.select([process.stdout], [], [], left)[0]:
            continue
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")


def run(folder, deb, results, seconds, cpus):
    expected = re.findall(r"^test_([a-z_0-9]+)\(\)", (HERE / "guest" / "suite.sh").read_text(), re.M)
    cases, running, complete = [], None, False
    began = time.monotonic()
    since = lambda: f"[{time.monotonic() - began:5.0f} s]"  # noqa: E731
    with tempfile.TemporaryDirectory(prefix="agentmon-vm-") as name:
        work = pathlib.Path(name)
        pack(deb, work / "payload.tar")
        with open(work / "results.tar", "wb") as out:
            out.truncate(RESULTS_BYTES)
        words = command(folder, work, cpus)
        say(f"booting, at most {seconds} s")
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            for line in lines_of(process, began + seconds):
                if line is None:
                    cases.append(junit.Case(running or "boot", "fail", f"not done after {seconds} s"))
                    break
                if line.startswith("CASE\t"):
                    _, case, outcome, took, message = (line.split("\t") + [""])[:5]
                    cases.append(junit.Case(case, outcome, message.replace("|", "\n").strip(), float(took)))
                    print(f"{since()} {outcome} {case} ({took} s)", file=sys.stderr, flush=True)
                    if outcome == "fail":
                        print(cases[-1].message, file=sys.stderr, flush=True)
                    running = None
                elif line.startswith("START "):
                    running = line[6:]
                elif line == "DONE":
                    complete = True
                else:
                    print(f"{since()} {line}", file=sys.stderr, flush=True)
            else:
                if not complete:
                    cases.append(junit.Case(running or "boot", "fail", "the machine stopped before its end"))
        finally:
            process.kill()
            process.wait()
        logs = results / "vm"
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        if (work / "console.txt").exists():
            shutil.copy(work / "console.txt", logs)
        if complete:
            with tarfile.open(work / "results.tar") as tar:
                for member in tar.getmembers():
                    if member.isfile():
                        (logs / pathlib.PurePath(member.name).name).write_bytes(tar.extractfile(member).read())
    seen = {case.name for case in cases}
    cases += [junit.Case(case, "fail", "did not run") for case in expected if case not in seen]
    junit.write(results / "vm.xml", "vm", cases)
    say(f"virtual machine: {time.monotonic() - began:.0f} s, logs in {logs}")
    return 1 if any(case.outcome == "fail" for case in cases) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    parser.add_argument("--deb", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path(home) / "agentmon")
    parser.add_argument("--seconds", type=int, default=1200)
    parser.add_argument("--cpus", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--build-only", action="store_true")
    args = parser.parse_args()
    folder = image(args.cache)
    if args.build_only:
        return 0
    if args.deb is None or args.results is None:
        parser.error("--deb and --results are needed")
    args.results.mkdir(parents=True, exist_ok=True)
    return run(folder, args.deb, args.results, args.seconds, args.cpus)


if __name__ == "__main__":
    sys.exit(main())
