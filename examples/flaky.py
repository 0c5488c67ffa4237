"""Fail at the first attempt, like a program that needs an unreliable service, and succeed at the second."""

import os
import sys

attempt = int(os.environ["PUNCTUAL_ATTEMPT"])
print(f"Attempt {attempt} of execution {os.environ['PUNCTUAL_EXECUTION_ID']}", flush=True)
if attempt == 1:
    sys.exit("The service did not answer.")
print("The service answered.")
