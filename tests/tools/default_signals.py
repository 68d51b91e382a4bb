"""Signals that our caller ignores, as shells do for what they run in the background, are not ignored by programs under test."""
import signal


def restore():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        if signal.getsignal(name) == signal.SIG_IGN:
            signal.signal(name, signal.SIG_DFL)
