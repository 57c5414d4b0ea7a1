//! The controller of kube-lottery.
