# Links to what the worker can read, and links that lead nowhere.
cd out
echo mine > file
ln -s /etc/passwd passwd
ln -s /etc shadow-directory
ln -s file near
ln -s . here
ln -s loop loop
ln -s one two; ln -s two one
ln -s ../../../../../../etc/passwd up
ln -s /proc/self/environ environment
ln -s /dev/zero endless
mkdir inner
ln -s ../.. inner/out
ln -s /proc/self/fd/1 stdout
echo held links
