#!/bin/bash
# Makes the image that the VM tests boot: image.sh FOLDER RELEASE leaves disk.img, vmlinuz and initrd.img in it. Needs
# root. Debian 12 (bookworm) or 13 (trixie) with systemd, D-Bus, logind and what the package depends on; a user `dev` (uid 1000); at boot a service
# unpacks the second disk into /run/vm and runs /run/vm/run.
set -euo pipefail
OUT=$1 RELEASE=$2
PACKAGES=systemd-sysv,dbus,libpam-systemd,linux-image-cloud-amd64,initramfs-tools,kmod,udev,procps,libcap2-bin
PACKAGES+=,libelf1,libseccomp2,libsqlite3-0,libstdc++6,libsystemd0,zlib1g
# For what the cases look at: profiles, tables of the firewall, programs in the kernel.
PACKAGES+=,apparmor,nftables,bpftool
# What agents and cases work with.
PACKAGES+=,python3,git
# Who else answers for names, and a server of names.
PACKAGES+=,libnss-resolve,systemd-resolved,nscd,dnsmasq-base

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What the guest needs of modules to find its disk: a small initrd is quick to make and to unpack in emulation.
cat >"$work/before" <<'END'
#!/bin/sh
set -e
mkdir -p "$1/etc/initramfs-tools/conf.d"
printf 'MODULES=list\nCOMPRESS=lz4\nCOMPRESSLEVEL=1\nRESUME=none\n' >"$1/etc/initramfs-tools/conf.d/vm"
printf 'virtio_pci\nvirtio_blk\next4\ncrc32c_generic\n' >"$1/etc/initramfs-tools/modules"
END

cat >"$work/after" <<'END'
#!/bin/sh
set -e
echo vm >"$1/etc/hostname"
echo 'LABEL=root / ext4 defaults 0 0' >"$1/etc/fstab"
chroot "$1" useradd --uid 1000 --create-home --shell /bin/bash dev
chroot "$1" passwd --delete root
mkdir -p "$1/etc/systemd/journald.conf.d"
printf '[Journal]\nStorage=volatile\nRateLimitBurst=0\n' >"$1/etc/systemd/journald.conf.d/vm.conf"
cat >"$1/etc/systemd/system/vm.service" <<'UNIT'
[Unit]
Description=Tests from the second disk
After=multi-user.target
[Service]
Type=exec
ExecStart=/bin/sh -c 'mkdir -p /run/vm && tar -x -f /dev/vdb -C /run/vm && exec bash /run/vm/run'
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS1
UNIT
mkdir -p "$1/etc/systemd/system/graphical.target.wants"
ln -s /etc/systemd/system/vm.service "$1/etc/systemd/system/graphical.target.wants/vm.service"
# Nobody reads these, and each costs seconds of an emulated boot. Those of names are for the case that wants them.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
  fstrim.timer getty@tty1.service systemd-pstore.service man-db.timer apparmor.service nftables.service \
  systemd-resolved.service nscd.service \
  systemd-random-seed.service systemd-update-utmp.service systemd-update-utmp-runlevel.service \
  systemd-binfmt.service systemd-hwdb-update.service ldconfig.service getty-static.service \
  modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service; do
  ln -sf /dev/null "$1/etc/systemd/system/$unit"
done
END
chmod +x "$work/before" "$work/after"

mmdebstrap --mode=root --variant=apt --include="$PACKAGES" --format=directory \
  --aptopt='Acquire::Languages "none"' \
  --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt=force-unsafe-io --essential-hook="$work/before" --customize-hook="$work/after" \
  "$RELEASE" "$work/root"
cp "$work"/root/boot/vmlinuz-* "$OUT/vmlinuz"
cp "$work"/root/boot/initrd.img-* "$OUT/initrd.img"
rm -rf "$work"/root/var/lib/apt/lists/* "$work"/root/var/cache/apt/*.bin
mke2fs -q -t ext4 -L root -O '^has_journal' -E root_owner=0:0 -d "$work/root" "$OUT/disk.img" 1536M
