# Looks around in a sandbox, and tries what must not be possible there; a line for each probe: its name, then `held` or
# what was seen. For any POSIX shell with the usual small programs.
# $1: nothing here may have begun before this (ticks since boot); $2: a directory of the worker; $3: the limit of /work,
# in bytes; $4: a Python, or nothing; $5, $6: the probes that need one, and what they are to know.

say() { # name, what was seen
    echo "$1 ${2:-held}"
}

seen=
for path in /root /home /var /run /sys /boot /srv /mnt /media /etc/shadow /etc/ssh /etc/ssl/private; do
    [ -e "$path" ] && seen="$seen $path"
done
say host-files "${seen:+there is$seen}"

seen=
[ -e "$2" ] && seen="there is $2"
say worker-directory "$seen"

seen=
for stat in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null < "$stat" || continue
    set -f
    # shellcheck disable=SC2086
    began=$(set -- ${line##*) }; echo "${20}")
    set +f
    [ "$began" -lt "$1" ] && seen="it sees processes that began before it"
done
say host-processes "$seen"

# Names only: the values would be what must not get out.
seen=$(cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | while IFS= read -r line; do
    case $line in
        '' | PATH=* | PWD=* | OLDPWD=* | SHLVL=* | _=* | LD_PRELOAD=*) ;;
        *) printf ' %s' "${line%%=*}" ;;
    esac
done)
say environment "${seen:+it reads$seen}"

seen=
for descriptor in /proc/self/fd/*; do
    case $descriptor in
        */0 | */1 | */2 | */3) ;; # the fourth is for what a program tells of its progress
        # Not the shell's own, for this very listing: that is closed by now.
        *) [ -e "$descriptor" ] && seen="$seen ${descriptor##*/}" ;;
    esac
done
say descriptors "${seen:+open are also$seen}"

seen=
while read -r name value; do
    case $name in
        CapInh: | CapPrm: | CapEff: | CapBnd: | CapAmb:) [ "${value#"${value%%[!0]*}"}" ] && seen="$seen $name $value" ;;
        NoNewPrivs:) [ "$value" = 1 ] || seen="$seen $name $value" ;;
        Seccomp:) [ "$value" = 2 ] || seen="$seen $name $value" ;;
    esac
done < /proc/self/status
say privileges "$seen"

seen=
for place in / /usr /usr/bin /etc /bin /lib /dev /proc /proc/sys/kernel; do
    (: > "$place/punctual-probe") 2>/dev/null && seen="$seen $place"
done
for file in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sysrq-trigger /etc/passwd; do
    (: >> "$file") 2>/dev/null && seen="$seen $file"
done
say writing "${seen:+it can write to$seen}"

seen=
while read -r line; do
    case $line in
        lo:* | *'|'*) ;;
        *) seen="$seen ${line%%:*}" ;;
    esac
done < /proc/net/dev
say interfaces "${seen:+there is$seen}"

head -c "$(($3 + 1000000))" /dev/zero > /work/probe 2>/dev/null && seen="it wrote more than the limit" || seen=
rm -f /work/probe
say disk "$seen"

[ -n "$4" ] && exec "$4" -I -S -c "$5" "$6"
