"""The data plane: claims executions, runs their programs in the sandbox, reports what happened."""
