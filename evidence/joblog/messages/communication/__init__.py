"""Messages of the libraries with which processes reach each other: NCCL and its kin, MPI, rendezvous and stores."""
