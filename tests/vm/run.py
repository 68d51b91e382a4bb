#!/usr/bin/env python3
"""Boots a Debian virtual machine, installs a package in it and runs the cases of tests/vm/guest there.

  run.py --deb FILE --results FOLDER [--configuration NAME] [-k TEXT] [--cache FOLDER] [--seconds N] [--cpus N]
  run.py --build-only [--configuration NAME] [--cache FOLDER]

The image is made once a release and kept below the cache, by a hash of its recipe. Nothing is written to it: each run sees it
as it was made, over its reboots. The machine has no network. The package goes in, and the reports come out, as tar
archives on disks of their own. FOLDER gets a JUnit file and vm/NAME: a log for each case, the journal, the boot console.
Exit status 3: the image could not be made.
"""
import argparse
import fcntl
import hashlib
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import typing

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))
import junit  # noqa: E402

RESULTS_BYTES = 64 << 20
IMAGE_SECONDS = 1500
NO_IMAGE = 3


class Configuration(typing.NamedTuple):
    kernel: str = ""           # what it is told
    release: str = "bookworm"  # of Debian
    own: bool = False          # has no cases but its own, and those that install


# The first is the one that runs by default.
CONFIGURATIONS = {
    "main": Configuration(),
    "apparmor": Configuration("lsm=landlock,lockdown,yama,apparmor"),
    "no-lsm": Configuration("lsm=landlock,lockdown,yama apparmor=0"),
    "hybrid": Configuration("systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=0"),
    "debian13": Configuration(release="trixie"),
    "capabilities": Configuration(own=True),
}
# A case that two of different files may run at once.
BESIDE = "beside others"
# Files of cases that come before and after the others, which come by name.
FIRST, LAST = ["install"], ["upgrade", "reboot", "removal"]


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def has_case(configuration, file, marks):
    """Whether a case runs there. Of its marks: none for `main` alone, names of configurations, or `every configuration`."""
    where = [mark for mark in marks if mark != BESIDE] or ["main"]
    if where == ["every configuration"]:
        return not CONFIGURATIONS[configuration].own or file in FIRST
    return configuration in where


def cases_of(guest, configuration, keyword=""):
    """[(file, case, whether others run beside it)] in the order they run in: those with others before those without."""
    files = {path.stem: path for path in guest.glob("*.sh") if path.stem != "common"}
    rest = sorted(name for name in files if name not in FIRST + LAST)

    def of(names):
        for name in names:
            for case, marks in re.findall(r"^test_(\w+)\(\) \{(?: *# (.+))?$", files[name].read_text(), re.M):
                marks = marks.split(", ") if marks else []
                if has_case(configuration, name, marks) and (keyword in case or name in FIRST):
                    yield files[name].name, case, BESIDE in marks

    return [*of(FIRST), *sorted(of(rest), key=lambda case: not case[2]), *of(LAST)]


def image(cache, release):
    """The folder of the release's image; made when it is not there, by one at a time."""
    recipe = HERE / "image.sh"
    folder = cache / f"vm-{release}-{hashlib.sha256(recipe.read_bytes()).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "vm.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        say(f"making the image in {folder} (some minutes, once)")
        began = time.monotonic()
        # The last one stays: another branch may have it.
        for old in sorted((p for p in cache.glob(f"vm-{release}-*") if p.is_dir()), key=lambda p: p.stat().st_mtime)[:-1]:
            shutil.rmtree(old)
        unfinished = pathlib.Path(tempfile.mkdtemp(prefix="making-", dir=cache))
        try:
            log = cache / "vm-image.log"
            with open(log, "wb") as out:
                made = subprocess.run(["timeout", "--kill-after=10", str(IMAGE_SECONDS), str(recipe), str(unfinished),
                                       release],
                                      stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
            if made.returncode != 0:
                print(log.read_text(errors="replace")[-3000:], file=sys.stderr)
                say(f"the image could not be made; all of it: {log}")
                raise SystemExit(NO_IMAGE)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        say(f"image made in {time.monotonic() - began:.0f} s")
    return folder


def newer(deb, work):
    """The same package with a higher version."""
    tree, made = work / "newer", work / "newer.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", str(deb), str(tree)], check=True)
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub(r"^(Version: .*)$", r"\1+newer", control.read_text(), flags=re.M))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(made)], check=True,
                   stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    return made


def pack(deb, cases, work, target):
    with tarfile.open(target, "w") as tar:
        for path in sorted((HERE / "guest").iterdir()):
            tar.add(path, path.name)
        (work / "cases").write_text("".join(f"{file} {case} {'beside' if beside else 'alone'}\n" for file, case, beside in cases))
        tar.add(work / "cases", "cases")
        tar.add(deb, "agentmon.deb")
        tar.add(newer(deb, work), "newer.deb")
    # A disk is whole sectors.
    os.truncate(target, (target.stat().st_size + 1048575) // 1048576 * 1048576)


def command(folder, work, cpus, configuration):
    words = ["qemu-system-x86_64", "-machine", "pc", "-smp", str(cpus), "-m", "1024", "-display", "none", "-nic", "none",
             "-monitor", "none", "-nodefaults"]
    # Emulated even where there is a /dev/kvm: one below another hypervisor may stop in the middle of a boot.
    accelerated = os.environ.get("AGENTMON_VM_KVM") == "1"
    # A processor without XSAVE: emulated, a switch between programs with it costs nearly as much as the programs do.
    words += ["-accel", "kvm", "-cpu", "host"] if accelerated else ["-accel", "tcg,thread=multi", "-cpu", "Nehalem,+rdrand"]
    for path, rest in ((folder / "disk.img", "snapshot=on"), (work / "payload.tar", "readonly=on"),
                       (work / "results.tar", "cache=unsafe")):
        words += ["-drive", f"if=virtio,format=raw,file={path},{rest}"]
    words += ["-kernel", str(folder / "vmlinuz"), "-initrd", str(folder / "initrd.img"),
              # no_timer_check: on a busy host the emulated timer is late, and the kernel takes it for broken.
              "-append", "root=/dev/vda rw console=ttyS0 quiet no_timer_check mitigations=off panic=-1 "
              + CONFIGURATIONS[configuration].kernel,
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


def processor_seconds(pid):
    """What the machine has used: unlike the time of the clock, nearly the same whoever else wants the processors."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def follow(lines, seconds, began, pid):
    """Shows what the machine says, and gathers its cases; whether it came to its end."""
    cases, running, complete, used = [], [], False, 0

    def end(why):
        cases.extend(junit.Case(case, "fail", why) for case in running or ["boot"])

    for line in lines:
        since = f"[{time.monotonic() - began:5.0f} s]"
        if line is None:
            end(f"not done after {seconds} s")
            return cases, False
        if line.startswith("CASE\t"):
            _, case, outcome, took, message = (line.split("\t") + [""])[:5]
            cases.append(junit.Case(case, outcome, message.replace("|", "\n").strip(), float(took)))
            before, used = used, processor_seconds(pid)
            print(f"{since} {outcome} {case} ({took} s, {used - before:.1f} s of processors)", file=sys.stderr, flush=True)
            if outcome == "fail":
                print(cases[-1].message, file=sys.stderr, flush=True)
            running.remove(case)
        elif line.startswith("START "):
            running.append(line[6:])
        elif line == "DONE":
            complete = True
        else:
            print(f"{since} {line}", file=sys.stderr, flush=True)
    if not complete:
        end("the machine stopped before its end")
    return cases, complete


def keep_logs(work, logs, complete):
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    if (work / "console.txt").exists():
        shutil.copy(work / "console.txt", logs)
    if not complete:
        return
    with tarfile.open(work / "results.tar") as tar:
        for member in tar.getmembers():
            if member.isfile():
                (logs / pathlib.PurePath(member.name).name).write_bytes(tar.extractfile(member).read())


def run(folder, args):
    name = "vm" if args.configuration == "main" else f"vm-{args.configuration}"
    expected = cases_of(HERE / "guest", args.configuration, args.keyword)
    logs = args.results / "vm" / args.configuration
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agentmon-vm-") as scratch:
        work = pathlib.Path(scratch)
        pack(args.deb, expected, work, work / "payload.tar")
        with open(work / "results.tar", "wb") as out:
            out.truncate(RESULTS_BYTES)
        say(f"booting ({args.configuration}), {len(expected)} cases, at most {args.seconds} s")
        process = subprocess.Popen(command(folder, work, args.cpus, args.configuration), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE)
        try:
            cases, complete = follow(lines_of(process, began + args.seconds), args.seconds, began, process.pid)
        finally:
            process.kill()
            process.wait()
        keep_logs(work, logs, complete)
    seen = {case.name for case in cases}
    cases += [junit.Case(case, "fail", "did not run") for _, case, _ in expected if case not in seen]
    junit.write(args.results / f"{name}.xml", name, cases)
    say(f"virtual machine ({args.configuration}): {time.monotonic() - began:.0f} s, logs in {logs}")
    return 1 if any(case.outcome == "fail" for case in cases) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    parser.add_argument("--deb", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--configuration", choices=CONFIGURATIONS, default="main")
    parser.add_argument("-k", dest="keyword", default="", help="only cases whose name has this, and those that install")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path(home) / "agentmon")
    parser.add_argument("--seconds", type=int, default=1800)
    parser.add_argument("--cpus", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--build-only", action="store_true")
    args = parser.parse_args()
    # Ended from outside, it takes the machine with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = image(args.cache, CONFIGURATIONS[args.configuration].release)
    if args.build_only:
        return 0
    if args.deb is None or args.results is None:
        parser.error("--deb and --results are needed")
    args.results.mkdir(parents=True, exist_ok=True)
    return run(folder, args)


if __name__ == "__main__":
    sys.exit(main())
