# A program that is not Python sees the same four; the fifth is the listing's own.
set -- /proc/self/fd/*
[ "$(ls /proc/self/fd | tr '\n' ' ')" = "0 1 2 3 4 " ] && echo held listing || echo ESCAPED listing
for other in /proc/[0-9]*; do
    for number in $(ls $other/fd 2>/dev/null); do
        case $(readlink $other/fd/$number) in
            ""|/dev/null|pipe:*|anon_inode:\[eventfd\]|/proc/*|/work/*) ;;
            *) echo "ESCAPED $other/fd/$number $(readlink $other/fd/$number)" ;;
        esac
    done
done
echo held others
