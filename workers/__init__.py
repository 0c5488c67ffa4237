"""The data plane: claims executions, runs their programs in a sandbox and reports what happened."""
