# Inspects a sandbox and tries what must not be possible inside; prints a line for each probe: its name, then `held` or
# the finding. For any POSIX shell with the usual small programs.
# $1: no process may have started before this (ticks since boot); $2: a directory of the worker; $3: the limit of /work,
# in bytes; $4: a Python, or nothing; $5, $6: the Python probes and their input.

report() { # name, finding
    echo "$1 ${2:-held}"
}

finding=
for path in /root /home /var /run /sys /boot /srv /mnt /media /etc/shadow /etc/ssh /etc/ssl/private; do
    [ -e "$path" ] && finding="$finding $path"
done
report host-files "${finding:+there is$finding}"

finding=
[ -e "$2" ] && finding="there is $2"
report worker-directory "$finding"

finding=
for stat in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null < "$stat" || continue
    set -f
    # shellcheck disable=SC2086
    started=$(set -- ${line##*) }; echo "${20}")
    set +f
    [ "$started" -lt "$1" ] && finding="it sees processes that started before it"
done
report host-processes "$finding"

# Names only, as the values may be secret.
finding=$(cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | while IFS= read -r line; do
    case $line in
        '' | PATH=* | PWD=* | OLDPWD=* | SHLVL=* | _=* | LD_PRELOAD=*) ;;
        *) printf ' %s' "${line%%=*}" ;;
    esac
done)
report environment "${finding:+it reads$finding}"

finding=
for descriptor in /proc/self/fd/*; do
    case $descriptor in
        */0 | */1 | */2 | */3) ;; # 3 is the progress descriptor
        # Not the shell's own descriptor for this listing, which is closed by now.
        *) [ -e "$descriptor" ] && finding="$finding ${descriptor##*/}" ;;
    esac
done
report descriptors "${finding:+open are also$finding}"

finding=
while read -r name value; do
    case $name in
        CapInh: | CapPrm: | CapEff: | CapBnd: | CapAmb:) [ "${value#"${value%%[!0]*}"}" ] && finding="$finding $name $value" ;;
        NoNewPrivs:) [ "$value" = 1 ] || finding="$finding $name $value" ;;
        Seccomp:) [ "$value" = 2 ] || finding="$finding $name $value" ;;
    esac
done < /proc/self/status
report privileges "$finding"

finding=
for place in / /usr /usr/bin /etc /bin /lib /dev /proc /proc/sys/kernel; do
    (: > "$place/punctual-probe") 2>/dev/null && finding="$finding $place"
done
for file in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sysrq-trigger /etc/passwd; do
    (: >> "$file") 2>/dev/null && finding="$finding $file"
done
report writing "${finding:+it can write to$finding}"

finding=
while read -r line; do
    case $line in
        lo:* | *'|'*) ;;
        *) finding="$finding ${line%%:*}" ;;
    esac
done < /proc/net/dev
report interfaces "${finding:+there is$finding}"

head -c "$(($3 + 1000000))" /dev/zero > /work/probe 2>/dev/null && finding="it wrote more than the limit" || finding=
rm -f /work/probe
report disk "$finding"

[ -n "$4" ] && exec "$4" -I -S -c "$5" "$6"
