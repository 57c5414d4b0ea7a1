//! What happens to a packet, written once for kernel and host.
