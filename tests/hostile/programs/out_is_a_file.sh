# The output directory itself is a FIFO by the end.
rm -rf out
mkfifo out
echo held file
