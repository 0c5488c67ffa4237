"""Another run, of somebody else, with secrets in every place that it has."""

import sys
import time

secret = sys.argv[2]
for place in ("/work/secret", "/tmp/secret", "/dev/shm/secret"):
    with open(place, "w") as file:
        file.write(secret)
print("ready", flush=True)
time.sleep(1000)
