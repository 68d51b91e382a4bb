#!/usr/bin/env python3
"""agentmon run on a real terminal: job control, ^C, ^Z, sizes, passwords, and the line at the end.

AM is the wrapper, e.g. AM='agentmon run --allow-root --'. Empty: the control, every check but those of the
line at the end must hold without it too. Arguments choose checks. Exits 0 when all is well.
"""
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

AM = os.environ.get("AM", "").split()
DEADLINE = 30
SHELL = AM + ["bash", "--norc", "--noprofile", "-i"]
OUTER = ["bash", "--norc", "--noprofile", "-i"]
PROMPT = b"PROMPT> "


class Terminal:
    """A program on a pseudo terminal of its own."""

    def __init__(self, command):
        self.output = b""
        self.seen = 0                      # what expect() has consumed
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(PS1="PROMPT> ", TERM="xterm", LC_ALL="C.UTF-8")
            try:
                os.execvp(command[0], command)
            finally:
                os._exit(99)
        self.deadline = time.monotonic() + DEADLINE

    def read(self):
        """Takes in what is there; False at the end."""
        ready, _, _ = select.select([self.fd], [], [], 0.05)
        if not ready:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.output += data
        return bool(data)

    def expect(self, text):
        """Waits for text behind what was expected before."""
        while text not in self.output[self.seen:]:
            if time.monotonic() > self.deadline or not self.read():
                raise AssertionError(f"no {text!r} in {self.output[self.seen:][-300:]!r}")
        self.seen = self.output.index(text, self.seen) + len(text)

    def send(self, data):
        os.write(self.fd, data)

    def say(self, line):
        """Types a line when the shell asks for one."""
        self.expect(PROMPT)
        self.send(line + b"\n")

    def until(self, condition, what):
        while not condition():
            if time.monotonic() > self.deadline:
                raise AssertionError(f"never: {what}; {self.output[-300:]!r}")
            self.read()

    def foreground(self):
        """Command lines of the terminal's foreground process group."""
        group = struct.unpack("i", fcntl.ioctl(self.fd, termios.TIOCGPGRP, b"\0" * 4))[0]
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", "rb") as stat:
                    fields = stat.read().rsplit(b")", 1)[1].split()
                with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
                    words = cmdline.read().split(b"\0")[:-1]
            except OSError:
                continue
            if int(fields[2]) == group:
                found.append(words)
        return found

    def until_foreground(self, name):
        """The program itself is there: not the shell that is about to become it."""
        self.until(lambda: any(words and os.path.basename(words[0]) == name for words in self.foreground()),
                   f"{name} in the foreground")

    def wait(self):
        """Exit status, or minus the signal; 'hang' when it had to be killed."""
        while time.monotonic() < self.deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return "hang"

    def finish(self):
        """Takes in the rest and waits for the end."""
        while self.read() and time.monotonic() < self.deadline:
            pass
        result = self.wait()
        os.close(self.fd)
        return result


def command_line(words):
    return " ".join(AM + words).encode()


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def interrupt_ends_the_program_not_the_shell():
    t = Terminal(SHELL)
    t.say(b"sleep 60")
    t.until_foreground(b"sleep")
    t.send(b"\x03")
    t.say(b"echo status=$?")
    t.expect(b"status=130")
    t.say(b"exit 5")
    check(t.finish() == 5, "exit status of the shell")


def stop_and_foreground_inside():
    t = Terminal(SHELL)
    t.say(b"sleep 60")
    t.until_foreground(b"sleep")
    t.send(b"\x1a")
    t.expect(b"Stopped")
    t.say(b"jobs")
    t.expect(b"Stopped")
    t.say(b"fg")
    t.until_foreground(b"sleep")
    t.send(b"\x03")
    t.say(b"exit 3")
    check(t.finish() == 3, "exit status")


def pipeline_reads_the_terminal():
    t = Terminal(SHELL)
    t.say(b"cat | cat")
    t.until_foreground(b"cat")
    t.send(b"hello\n")
    t.expect(b"hello\r\nhello")
    t.send(b"\x04")
    t.say(b"exit")
    check(t.finish() == 0, "exit status")


def password_is_not_echoed():
    t = Terminal(AM + [sys.executable, "-c", "import getpass; print('length', len(getpass.getpass('PW:')))"])
    t.expect(b"PW:")
    t.send(b"geheim\n")
    t.expect(b"length 6")
    check(t.finish() == 0, "exit status")
    check(b"geheim" not in t.output, "the password was echoed")


def window_size_gets_through():
    t = Terminal(SHELL)
    t.say(b"trap 'echo WINCHED' WINCH")
    t.expect(PROMPT)
    fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
    t.send(b"stty size\n")
    t.expect(b"33 99")
    check(b"WINCHED" in t.output, "no SIGWINCH")
    t.send(b"exit\n")
    check(t.finish() == 0, "exit status")


def outer_shell_stops_and_continues_us():
    t = Terminal(OUTER)
    t.say(command_line(["sleep", "60"]))
    t.until_foreground(b"sleep")
    t.send(b"\x1a")
    t.expect(b"Stopped")
    t.say(b"jobs -l")
    t.expect(b"Stopped")
    t.say(b"fg")
    t.until_foreground(b"sleep")
    t.send(b"\x03")
    t.say(b"echo status=$?")
    t.expect(b"status=130")
    t.say(b"read x")
    t.send(b"q\n")
    t.say(b"echo back=$x")
    t.expect(b"back=q")
    t.say(b"exit")
    check(t.finish() == 0, "exit status")


def outer_shell_continues_us_in_the_background():
    t = Terminal(OUTER)
    t.say(command_line(["sh", "-c", "'sleep 60 & echo sleep\"\"ing; wait; echo waited'"]))
    t.expect(b"sleeping\r\n")
    t.send(b"\x1a")
    t.expect(b"Stopped")
    t.say(b"bg")
    t.say(b"jobs")
    t.expect(b"Running")
    t.say(b"kill %1; wait; echo go\"\"ne")   # the echo of what is typed does not match
    t.expect(b"gone\r\n")
    t.say(b"exit")
    check(t.finish() != "hang", "the job survived")


def background_reader_waits_for_the_foreground():
    t = Terminal(OUTER)
    t.say(command_line(["cat"]) + b" &")
    for _ in range(200):                   # the shell tells of a stopped job at its next prompt
        t.say(b"")
        time.sleep(0.05)
        if b"Stopped" in t.output:
            break
    t.say(b"fg")
    t.until_foreground(b"cat")
    t.send(b"through\n")
    t.expect(b"through\r\nthrough")
    t.send(b"\x04")
    t.say(b"exit")
    check(t.finish() == 0, "exit status")


def hangup_ends_all():
    t = Terminal(AM + ["sh", "-c", "echo pid $$ up; sleep 60; echo no"])
    t.expect(b"pid ")
    t.expect(b" up")
    agent = int(t.output.split(b"pid ")[1].split()[0])
    os.close(t.fd)
    check(t.wait() == -signal.SIGHUP, "the caller sees another end than HUP")
    check(not os.path.exists(f"/proc/{agent}"), "the agent lives")


def stopped_agent_takes_its_caller_along():
    t = Terminal(OUTER)
    t.say(command_line(["sh", "-c", "'kill -STOP $$; echo continued'"]))
    t.expect(b"Stopped")
    t.say(b"fg")
    t.expect(b"\ncontinued")
    t.say(b"exit")
    check(t.finish() == 0, "exit status")


def line_at_the_end():
    t = Terminal(AM + ["true"])
    check(t.finish() == 0, "exit status")
    if AM:
        check(b"agentmon timeline --session " in t.output, f"no line at the end: {t.output!r}")
        check(t.output.count(b"\n") == 1, f"more than a line: {t.output!r}")
        quiet = Terminal(AM[:-1] + ["--quiet", "--", "true"])
        check(quiet.finish() == 0 and not quiet.output, f"--quiet is not: {quiet.output!r}")


CHECKS = [interrupt_ends_the_program_not_the_shell, stop_and_foreground_inside, pipeline_reads_the_terminal,
          password_is_not_echoed, window_size_gets_through, outer_shell_stops_and_continues_us,
          outer_shell_continues_us_in_the_background, background_reader_waits_for_the_foreground, hangup_ends_all,
          stopped_agent_takes_its_caller_along, line_at_the_end]


def main():
    failed = 0
    for one in CHECKS:
        if sys.argv[1:] and one.__name__ not in sys.argv[1:]:
            continue
        try:
            one()
            print("ok  ", one.__name__, flush=True)
        except AssertionError as error:
            failed += 1
            print("FAIL", one.__name__, error, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
