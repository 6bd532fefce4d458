"""The study of the target network_kernels: operations over their sizes, and whole networks."""
