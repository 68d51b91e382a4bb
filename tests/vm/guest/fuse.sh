# shellcheck shell=bash
# A FUSE mount of an ordinary user below the service as it is installed: its filter of system calls and its capabilities.

# fuse_mount FOLDER: as `dev`, who alone is let in; the files plain and secret/f, and whatever is made.
fuse_mount() {
  modprobe fuse
  cat >/run/vm/fuse.py <<'END'
import ctypes, os, stat, struct, sys
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=1000,group_id=1000".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"test", sys.argv[1].encode(), b"fuse.test", 6, options) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
nodes = {1: (stat.S_IFDIR | 0o755, {b"plain": 2, b"secret": 3}), 2: (stat.S_IFREG | 0o644, b"hello\n"),
         3: (stat.S_IFDIR | 0o755, {b"f": 4}), 4: (stat.S_IFREG | 0o644, b"TOP\n")}


def attributes(node):
    mode, content = nodes[node]
    size = len(content) if stat.S_ISREG(mode) else 0
    return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 1000, 1000, 0, 4096, 0)


def entry(node):
    return struct.pack("<4Q2I", node, 0, 0, 0, 0, 0) + attributes(node)


def answer(opcode, node, body):
    """The answer's bytes, or an errno."""
    if opcode == 26:  # INIT
        return struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 0, 0, 65536, 1, 0, 0, *[0] * 8)
    if opcode == 1:  # LOOKUP
        found = nodes[node][1].get(body.rstrip(b"\0"))
        return entry(found) if found else 2
    if opcode == 9:  # MKDIR
        made = len(nodes) + 1
        nodes[made] = (stat.S_IFDIR | 0o755, {})
        nodes[node][1][body[8:].rstrip(b"\0")] = made
        return entry(made)
    if opcode == 3:  # GETATTR
        return struct.pack("<QII", 0, 0, 0) + attributes(node)
    if opcode in (14, 27):  # OPEN, OPENDIR
        return struct.pack("<QII", 0, 0, 0)
    if opcode == 15:  # READ
        _, offset, size = struct.unpack_from("<QQI", body)
        return nodes[node][1][offset:offset + size]
    return b"" if opcode in (18, 25, 28, 29) else 38  # RELEASE, FLUSH, READDIR, RELEASEDIR; else ENOSYS


while True:
    try:
        request = os.read(device, 1 << 17)
    except OSError:
        break
    _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
    if opcode in (2, 36, 42):  # FORGET, INTERRUPT, BATCH_FORGET
        continue
    said = answer(opcode, node, request[40:])
    error, out = (-said, b"") if isinstance(said, int) else (0, said)
    os.write(device, struct.pack("<IiQ", 16 + len(out), error, unique) + out)
END
  as_dev mkdir -p "$1"
  python3 /run/vm/fuse.py "$1" >fuse.txt 2>&1 &
  fuse_server=$!
  wait_for 10 grep -q fuse.test /proc/mounts  # root may not look at it
}

test_rules_hold_on_a_fuse_mount_that_lets_its_owner_in_alone() {  # every configuration
  fuse_mount /home/dev/served
  cat >/run/vm/served.yaml <<'END'
version: 1
name: served
posture: enforce
defaults: {command: allow, file_read: allow, file_write: allow, network: allow, unix_socket: allow, signal: allow}
file_rules: [{name: no-secret, paths: ['/home/dev/served/secret/**'], decision: deny}]
END
  cat >/run/vm/served.sh <<'END'
cd || exit 1
cat served/plain
cat served/secret/f
mkdir served/made && echo MADE
mkdir served/secret/made && echo BAD
true
END
  chmod 644 /run/vm/served.yaml /run/vm/served.sh
  as_dev cp /run/vm/served.yaml /home/dev
  as_dev env LC_ALL=C agentmon run --name served --policy ~dev/served.yaml -- sh /run/vm/served.sh >said.txt 2>&1
  cat said.txt
  has hello said.txt
  has MADE said.txt
  # The kernel's own rules say EACCES, fanotify EPERM.
  local stopped='Operation not permitted' mechanism=fanotify
  ! grep -qw bpf /sys/kernel/security/lsm || stopped='Permission denied' mechanism=bpf_lsm
  has "served/secret/f: $stopped" said.txt
  has 'secret/made.: Permission denied' said.txt
  has_no -E 'TOP|BAD' said.txt
  agentmon timeline --session served --verdict deny --format json | tee denied.txt
  has "\"mechanism\":\"$mechanism\"" denied.txt
  has '"rule":"no-secret"' denied.txt
  has '"mechanism":"broker"' denied.txt
  # The control: without enforcement.
  as_dev env LC_ALL=C agentmon run --policy observe -- cat /home/dev/served/secret/f >said.txt
  has TOP said.txt
  umount -l /home/dev/served
  kill "$fuse_server" 2>/dev/null || true
  wait "$fuse_server" || true
}
