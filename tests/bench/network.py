"""The network beside a policy: connections, datagrams, names and a page, in a network namespace of its own. run.py has the columns."""
import contextlib
import ctypes
import os
import pathlib
import shutil
import socket
import subprocess

import harness
import workloads
from report import progress
from rig import Rig

COLUMNS = {"bare": "bare", "recorded": "recorded", "programs": "judged by the programs", "policy": "and calls asked",
           "nft": "plain nft sets", "proxy": "tinyproxy"}
NAMES = ["tcp-connect", "udp-sendto", "udp-send", "dns", "http-get"]
TABLE = "agentmon-bench-net"
DNS_SERVER = "127.0.0.53"
NAME, NAME_ADDRESS = "cached.bench.test", "198.51.100.1"
FORBIDDEN = "198.51.100.77"
HOSTS = [f"198.18.{i}.0/24" for i in range(100)]
POLICY = f"""version: 1
name: allowlist
posture: enforce
enforcement: best_effort
defaults: {{command: allow, file_read: allow, file_write: allow, network: deny, unix_socket: allow, signal: allow}}
network_rules:
  - {{name: loopback, cidrs: [127.0.0.0/8], decision: allow}}
  - {{name: hosts, cidrs: [{', '.join(HOSTS)}], ports: [443], protocol: tcp, decision: allow}}
  - {{name: names, domains: ['**.bench.test', bench.test, '**.example.org'], ports: [80, 443], decision: allow}}
"""
RULES = f"""
add table inet {TABLE}
add set inet {TABLE} hosts {{ type ipv4_addr . inet_service; flags interval; }}
add element inet {TABLE} hosts {{ {', '.join(f'{host} . 443' for host in HOSTS)} }}
add set inet {TABLE} loopback {{ type ipv4_addr; flags interval; elements = {{ 127.0.0.0/8 }}; }}
add chain inet {TABLE} session
add rule inet {TABLE} session ip daddr @loopback accept
add rule inet {TABLE} session ip daddr . tcp dport @hosts accept
add rule inet {TABLE} session reject
add chain inet {TABLE} output {{ type filter hook output priority 0; policy accept; }}
add rule inet {TABLE} output socket cgroupv2 level 1 "../../../proc/self/fd/%d" jump session
"""


@contextlib.contextmanager
def plain_sets():
    """A cgroup for which a table of nftables holds; both go at the end."""
    lib = ctypes.CDLL("libnftables.so.1")
    lib.nft_ctx_new.restype = ctypes.c_void_p
    lib.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
    context = ctypes.c_void_p(lib.nft_ctx_new(0))
    lib.nft_ctx_buffer_error(context)

    def run(text):
        if lib.nft_run_cmd_from_buffer(context, text.encode()) != 0:
            raise AssertionError(f"nftables: {lib.nft_ctx_get_error_buffer(context).decode()}")

    cgroup = harness.cgroup2_mount() / f"{TABLE}-{os.getpid()}"
    cgroup.mkdir()
    fd = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    try:
        run(RULES % fd)
        yield cgroup
        run(f"delete table inet {TABLE}\n")
    finally:
        os.close(fd)
        lib.nft_ctx_free(context)
        harness.wait_until(lambda: not (cgroup / "cgroup.procs").read_text(), what="the cgroup is empty")
        cgroup.rmdir()


class NetworkRig(Rig):
    config = f"log_level: warning\nresolver: {{servers: '{DNS_SERVER}:53'}}\n"
    watched = ("recorded", "programs", "policy")

    def __init__(self, folder, base, options):
        with contextlib.ExitStack() as self.stack:
            self.stack.enter_context(harness.own_network([FORBIDDEN]))
            super().__init__(folder, base, options)
            self.prepare(folder, base)
            self.stack = self.stack.pop_all()

    def prepare(self, folder, base):
        self.policy = base / "allowlist.yaml"
        self.policy.write_text(POLICY)
        # Without a file capability, which copies do not have.
        self.plain = base / "plain"
        self.plain.mkdir(mode=0o755)
        for name in ("agentmon", "agentmon-shim", "agentmon-ns"):
            shutil.copy(folder / name, self.plain / name)
        self.cgroup = self.stack.enter_context(plain_sets())
        self.http_port = self.serve([str(self.programs / "http_serve")])
        self.proxy_port = self.start_proxy()
        self.has_dns = self.start_dns()

    def close(self):
        super().close()
        self.stack.close()

    # -- who answers

    def background(self, words):
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.stack.callback(lambda: (process.kill(), process.wait(), process.stdout.close()))
        return process

    def serve(self, words):
        """The port that it prints."""
        return int(self.background([*harness.as_user(harness.UID), *words]).stdout.readline())

    def start_proxy(self):
        """0 when there is no tinyproxy."""
        if not shutil.which("tinyproxy"):
            progress("tinyproxy is not installed; its column is left out")
            return 0
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = self.base / "tinyproxy.conf"
        config.write_text(f"Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 20\nAllow 127.0.0.1\nLogLevel Critical\n"
                          f"LogFile \"{self.work}/tinyproxy.log\"\n")
        self.background([*harness.as_user(harness.UID), "tinyproxy", "-d", "-c", str(config)])
        listening = f"0100007F:{port:04X} 00000000:0000 0A"
        harness.wait_until(lambda: listening in pathlib.Path("/proc/self/net/tcp").read_text(), what="tinyproxy listens")
        return port

    def start_dns(self):
        if not shutil.which("dnsmasq"):
            progress("dnsmasq is not installed; names are left out")
            return False
        # Two of them: the one that is asked has what the other says in its cache.
        for port, words in ((5353, [f"--host-record={NAME},{NAME_ADDRESS}", "--local-ttl=3600"]), (53, ["--server=127.0.0.54#5353"])):
            address = DNS_SERVER if port == 53 else "127.0.0.54"
            self.background(["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--bind-interfaces",
                             f"--listen-address={address}", f"--port={port}", "--user=root", "--pid-file=", *words])
        ask = [str(self.programs / "dns_ask"), "1", DNS_SERVER, NAME]
        harness.wait_until(lambda: subprocess.run(ask, check=False).returncode == 0, what="dnsmasq answers")
        return True

    # -- the work

    def applies(self, workload, variant):
        return variant != "proxy" or (bool(self.proxy_port) and bool(workload.proxied))

    def once(self, workload, variant):
        if variant == "proxy":
            workload = workloads.Workload(workload.name, workload.what, workload.proxied, workload.folder)
        return super().once(workload, variant)

    def words_of(self, words, variant):
        user = harness.as_user(harness.UID)
        if variant == "nft":
            return ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self.cgroup / "cgroup.procs"), *user, *words]
        if variant not in self.watched:
            return [*user, *words]
        if variant == "recorded":
            return self.daemon.run_words(*words, options=("--quiet",))
        client = str((self.plain if variant == "programs" else self.folder) / "agentmon")
        return [*user, client, "--socket", str(self.daemon.socket), "run", "--quiet", "--policy", str(self.policy), "--", *words]

    def prove(self):
        """A forbidden destination, where somebody listens, fails in each column that judges, and nowhere else."""
        with socket.create_server((FORBIDDEN, 9), backlog=16):
            for variant in [v for v in self.options.variants if v != "proxy"]:
                self.arrange(variant)
                said = subprocess.run(self.words_of([str(self.programs / "dial"), FORBIDDEN], variant), check=False, env=self.home,
                                      stdin=subprocess.DEVNULL, cwd=self.work, stdout=subprocess.PIPE).stdout.decode().strip()
                wanted = {"programs": "EPERM", "policy": "EPERM", "nft": "ECONNREFUSED"}.get(variant, "connected")
                assert said == wanted, f"{variant}: a connect that is forbidden to some ended with {said!r}, not {wanted}"

    def workload(self, name):
        def micro(what, program, count, *argv, ratio=0.0, **more):
            count = max(30, int(count * self.make.size.scale))
            return workloads.Workload(name, f"{what}, {count:,} ×", [str(self.programs / program), str(count), *map(str, argv)],
                                      self.make.folder("micro"), operations=count, inside=ratio, **more)

        if name == "tcp-connect":
            return micro("TCP: socket + connect + close", "connect", 20_000, ratio=1.10)
        if name == "udp-sendto":
            return micro("UDP: sendto", "udp", 200_000, "sendto", ratio=1.05)
        if name == "udp-send":
            return micro("UDP: send on a connected socket", "udp", 200_000, "send", ratio=1.05)
        if name == "dns":
            # No more than a session may ask at once.
            return micro("a name that is in a cache", "dns_ask", 300, DNS_SERVER, NAME, ratio=1.0, added_ns=200_000) \
                if self.has_dns else None
        get = micro("HTTP: GET of 1 KB", "http_get", 3_000, self.http_port, 0, ratio=1.10)
        get.proxied = [*get.argv[:-1], str(self.proxy_port)]
        return get
