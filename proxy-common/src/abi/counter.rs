//! Counters: what the programs did with packets, one per-CPU word each.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $place:ident, $meaning:literal
       $(, next $next:literal)?;)*) => {
        /// Index of a counter in the counter map.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Counter {
            $($(#[$doc])* $name,)*
        }

        impl Counter {
            /// All counters, in the order of their indices.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The counter with this index.
            #[inline(always)]
            pub const fn from_index(index: u32) -> Option<Self> {
                $(if index == Self::$name as u32 {
                    return Some(Self::$name);
                })*
                None
            }

            /// Name for people and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Where it is counted.
            pub const fn place(self) -> Place {
                match self { $(Self::$name => Place::$place,)* }
            }

            /// One line that says what was counted.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }

            /// One line that says what to look at next, for packets that did not get through.
            pub const fn next(self) -> Option<&'static str> {
                $($(if self as u32 == Self::$name as u32 {
                    return Some($next);
                })?)*
                None
            }
        }
    };
}

/// Where packets are counted: a hook, and so a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// As they come in.
    Ingress,
    /// As they go out.
    Egress,
    /// At either.
    Both,
}

impl Place {
    /// The hook's name.
    pub const fn hook(self) -> &'static str {
        match self {
            Self::Ingress => "tc ingress",
            Self::Egress => "tc egress",
            Self::Both => "tc ingress, tc egress",
        }
    }

    /// Which way the packets go there that are translated.
    pub const fn direction(self) -> &'static str {
        match self {
            Self::Ingress => "to an endpoint",
            Self::Egress => "to a client",
            Self::Both => "both ways",
        }
    }
}

counters! {
    /// A new flow was opened towards an endpoint.
    NewFlow = "new-flow", Ingress, "a flow was opened and its endpoint drawn";
    /// A known flow drew another endpoint.
    Repick = "repick", Ingress, "a closed, expired or orphaned flow drew its endpoint again";
    /// A source port was rewritten.
    PortRewritten = "port-rewritten", Ingress, "a client port was taken at the endpoint and was rewritten";
    /// A flow half was rebuilt from the other.
    Repaired = "repaired", Both, "one half of a flow was missing and was rebuilt from the other";
    /// A mid-flow segment opened a flow.
    Loose = "loose", Ingress, "a segment in the middle of an unknown connection opened a flow";
    /// Direct traffic with an endpoint was noted.
    Direct = "direct", Both, "traffic with an endpoint that belongs to no Service was noted as direct";
    /// Dropped: Service without endpoints.
    DropNoEndpoint = "drop-no-endpoint", Ingress, "dropped: the Service has no endpoint that packets of this origin may go to",
        next "kube-lottery services: READY 0, or LOCAL 0 where a policy is Local; kube-lottery endpoints --service NAME says in what state they are";
    /// Marked to be rejected.
    Reject = "reject", Ingress, "marked for netfilter to reject: no endpoint anywhere, or no such port",
        next "kube-lottery services: a Service with READY 0, or a port that is not listed; kube-lottery endpoints --service NAME";
    /// Dropped: source outside the ranges that may use the frontend.
    DropSourceRange = "drop-source-range", Ingress, "dropped: its source is in none of the ranges that may use this address",
        next "compare loadBalancerSourceRanges of the Service with the client that kube-lottery monitor --drops shows";
    /// Dropped: frontend and endpoint tables disagreed twice.
    DropStale = "drop-stale", Ingress, "dropped: the endpoint tables changed twice while one packet read them",
        next "nothing, if it stays rare: the client sends again; kube-lottery status, if it goes on";
    /// Dropped: flow table refused an entry.
    DropTableFull = "drop-table-full", Ingress, "dropped: the flow table refused an entry; the client sends again",
        next "kube-lottery status --flows: a table near its maximum wants --max-flows or --max-half-open";
    /// Dropped: no free source port found.
    DropNoPort = "drop-no-port", Ingress, "dropped: no free source port towards the endpoint was found",
        next "kube-lottery flows --endpoint ADDRESS:PORT: too many clients of one address, or a node behind which they hide";
    /// Dropped: RST, FIN or SYN-ACK of an unknown connection.
    DropInvalid = "drop-invalid", Ingress, "dropped: RST, FIN or SYN-ACK of a connection that nobody knows",
        next "kube-lottery monitor --drops for who sends it; late packets of a connection that both sides have forgotten are harmless";
    /// Dropped: mid-flow segment, strict mode.
    DropMidFlow = "drop-mid-flow", Ingress, "dropped: a segment in the middle of an unknown connection (nf_conntrack_tcp_loose=0)",
        next "connections from before this node served them end so; sysctl net.netfilter.nf_conntrack_tcp_loose=1 lets them go on";
    /// Dropped: packet that came in could not be rewritten.
    DropRewrite = "drop-rewrite", Ingress, "dropped: the kernel refused to rewrite the packet",
        next "kube-lottery monitor --drops for the device; a kernel without memory, or packets that lie about their length";
    /// Dropped: packet on its way out could not be rewritten.
    DropRewriteOut = "drop-rewrite-out", Egress, "dropped: the kernel refused to rewrite the packet",
        next "kube-lottery monitor --drops for the device; a kernel without memory, or packets that lie about their length";
    /// Dropped: fragment towards a frontend, its datagram's first one not seen.
    DropFragment = "drop-fragment", Ingress, "dropped: a fragment to a Service, before or without the first one of its datagram",
        next "nothing, if it stays rare; a path MTU that is too large for datagrams, or a network that puts fragments out of order";
    /// Dropped: first fragment that cannot be translated.
    DropFragmentHead = "drop-fragment-head", Ingress, "dropped: a first fragment to a Service that ends before its ports, or SCTP's with another port",
        next "kube-lottery monitor --drops for who sends such fragments; they are made on purpose, or by SCTP over a small MTU";
    /// Dropped: first fragment of an answer that cannot be translated.
    DropFragmentHeadOut = "drop-fragment-head-out", Egress, "dropped: a first fragment of SCTP from an endpoint that serves another port than its Service",
        next "the SCTP endpoints' targetPort: the same as the Service's port, or messages smaller than the MTU";
    /// Passed: fragment towards one of the node's addresses, its datagram's first one not seen.
    PassFragment = "pass-fragment", Ingress, "passed untouched: a fragment to an address of the node, before or without the first one of its datagram";
    /// Passed: protocol that is not translated.
    PassProtocol = "pass-protocol", Ingress, "passed untouched: a protocol that is not translated";
    /// An ICMP error was translated.
    IcmpError = "icmp-error", Both, "an ICMP error about a packet of a flow was translated";
    /// Passed: ICMP error of no flow.
    PassIcmpError = "pass-icmp-error", Both, "passed untouched: an ICMP error about a Service's packet that is of no known flow or cannot be read";
    /// Passed: the node's own traffic from the port of a frontend.
    PassOwn = "pass-own-address", Egress, "traffic of the node itself from the port of a Service at its own address was noted";
    /// Passed: no frontend at this port.
    PassNoFrontend = "pass-no-frontend", Ingress, "passed untouched: a Service address, but no such port";
}

impl Counter {
    /// How many counters there are.
    pub const COUNT: u32 = Self::ALL.len() as u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_found_by_its_index() {
        for (index, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(index, *counter as usize);
            assert_eq!(Some(*counter), Counter::from_index(index as u32));
        }
        assert_eq!(None, Counter::from_index(Counter::COUNT));
    }

    #[test]
    fn every_drop_is_of_one_direction_and_says_so() {
        for counter in Counter::ALL {
            if !counter.name().starts_with("drop-") {
                continue;
            }
            assert!(counter.meaning().starts_with("dropped: "), "{counter:?}");
            assert!(counter.next().is_some(), "{counter:?}");
            let is_out = counter.name().ends_with("-out");
            let expected = if is_out {
                Place::Egress
            } else {
                Place::Ingress
            };
            assert_eq!(expected, counter.place(), "{counter:?}");
        }
    }
}
