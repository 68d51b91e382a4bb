"""A FUSE mount of the ordinary user, as sshfs makes one: bindfs, with the mount's owner alone let in unless others are asked for."""
import contextlib
import os
import pathlib
import signal
import subprocess

from harness import UID, end, wait_until


class Mount:
    """bindfs, which shows the folder `back` at `at`; into: in the mounts of that process; over: another such mount, so that
    this one's server has taken what it then waits for."""

    def __init__(self, work, name="served", uid=UID, others=False, into=None, over=None):
        self.back, self.at = over.at if over else work / f"{name}-back", work / name
        for folder in (self.at, *(() if over else (self.back,))):
            folder.mkdir()
            os.chown(folder, uid, uid)
        # It makes the mount by itself, and needs no account for it.
        caps = "+sys_admin,+dac_override"
        self.of = into or "self"
        words = [*(("nsenter", f"--mount=/proc/{into}/ns/mnt", "--") if into else ()), "setpriv", f"--reuid={uid}",
                 f"--regid={uid}", "--clear-groups", f"--inh-caps={caps}", f"--ambient-caps={caps}",
                 "bindfs", "-f", *(() if others else ("--no-allow-other",)), self.back, self.at]
        self.server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.line = wait_until(self.mounted, 10, "the mount is there").split()

    def mounted(self):
        assert self.server.poll() is None, "bindfs ended"
        return next((line for line in pathlib.Path(f"/proc/{self.of}/mountinfo").read_text().splitlines()
                     if line.split()[4] == str(self.at)), None)

    def put(self, name, text, mode=0o644, uid=UID):
        path = self.back / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        path.chmod(mode)
        for each in (path, path.parent):
            os.chown(each, uid, uid)

    def hang(self):
        """Its server answers nothing from now on."""
        self.server.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.server.send_signal(signal.SIGCONT)

    def abort(self):
        with contextlib.suppress(FileNotFoundError):
            (pathlib.Path("/sys/fs/fuse/connections") / self.line[2].split(":")[1] / "abort").write_text("1")

    def close(self):
        self.go_on()
        if self.of == "self":
            subprocess.run(["umount", "-l", self.at], check=False)
        self.server.terminate()
        end(self.server)


@contextlib.contextmanager
def mounted(work, **options):
    mount = Mount(work, **options)
    try:
        yield mount
    finally:
        mount.close()
