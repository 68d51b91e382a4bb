#!/bin/sh
# What ./dev demo watches: a little of what a coding agent does. Runs as an ordinary user in an empty folder.
set -eu
export HOME="$PWD" GIT_CONFIG_NOSYSTEM=1

echo "- a repository with one commit"
git init -q project
cd project
git config user.email agent@example.invalid
git config user.name agent
printf '# demo\n' >README.md
git add README.md
git commit -q -m "first commit"

echo "- a C program, compiled and run"
cat >hello.c <<'C'
#include <stdio.h>
int main(void) { puts("  hello from inside the session"); return 0; }
C
cc -O1 -o hello hello.c
./hello

echo "- files written, renamed, made private, deleted"
mkdir notes
printf 'draft\n' >notes/draft.txt
mv notes/draft.txt notes/final.txt
chmod 600 notes/final.txt
ln notes/final.txt notes/copy.txt
rm notes/copy.txt notes/final.txt
rmdir notes

echo "- a web server on 127.0.0.1, and one fetch from it"
python3 - <<'PY'
import http.server, threading, urllib.request
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = "http://127.0.0.1:%d/README.md" % server.server_address[1]
print("  fetched", len(urllib.request.urlopen(url, timeout=10).read()), "bytes from", url)
server.shutdown()
PY

echo "- a command line with a password in it"
env true --password=correct-horse-battery-staple
