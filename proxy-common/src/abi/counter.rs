//! Counters: what the programs did with packets, one per-CPU word each.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $meaning:literal;)*) => {
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

            /// One line that says what was counted.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }
        }
    };
}

counters! {
    /// A new flow was opened towards an endpoint.
    NewFlow = "new-flow", "a flow was opened and its endpoint drawn";
    /// A known flow drew another endpoint.
    Repick = "repick", "a closed, expired or orphaned flow drew its endpoint again";
    /// A source port was rewritten.
    PortRewritten = "port-rewritten", "a client port was taken at the endpoint and was rewritten";
    /// A flow half was rebuilt from the other.
    Repaired = "repaired", "one half of a flow was missing and was rebuilt from the other";
    /// A mid-flow segment opened a flow.
    Loose = "loose", "a segment in the middle of an unknown connection opened a flow";
    /// Direct traffic with an endpoint was noted.
    Direct = "direct", "traffic with an endpoint that belongs to no Service was noted as direct";
    /// Dropped: Service without endpoints.
    DropNoEndpoint = "drop-no-endpoint", "dropped: the Service has no endpoint that packets of this origin may go to";
    /// Marked to be rejected.
    Reject = "reject", "marked for netfilter to reject: no endpoint anywhere, or no such port";
    /// Dropped: source outside the ranges that may use the frontend.
    DropSourceRange = "drop-source-range", "dropped: its source is in none of the ranges that may use this address";
    /// Dropped: frontend and endpoint tables disagreed twice.
    DropStale = "drop-stale", "dropped: the endpoint tables changed twice while one packet read them";
    /// Dropped: flow table refused an entry.
    DropTableFull = "drop-table-full", "dropped: the flow table refused an entry; the client sends again";
    /// Dropped: no free source port found.
    DropNoPort = "drop-no-port", "dropped: no free source port towards the endpoint was found";
    /// Dropped: RST, FIN or SYN-ACK of an unknown connection.
    DropInvalid = "drop-invalid", "dropped: RST, FIN or SYN-ACK of a connection that nobody knows";
    /// Dropped: mid-flow segment, strict mode.
    DropMidFlow = "drop-mid-flow", "dropped: a segment in the middle of an unknown connection (nf_conntrack_tcp_loose=0)";
    /// Dropped: packet could not be rewritten.
    DropRewrite = "drop-rewrite", "dropped: the kernel refused to rewrite the packet";
    /// Dropped: fragment towards a frontend, its datagram's first one not seen.
    DropFragment = "drop-fragment", "dropped: a fragment to a Service, before or without the first one of its datagram";
    /// Dropped: first fragment that cannot be translated.
    DropFragmentHead = "drop-fragment-head", "dropped: a first fragment to or from a Service that ends before its ports, or SCTP's with another port";
    /// Passed: fragment towards one of the node's addresses, its datagram's first one not seen.
    PassFragment = "pass-fragment", "passed untouched: a fragment to an address of the node, before or without the first one of its datagram";
    /// Passed: protocol that is not translated.
    PassProtocol = "pass-protocol", "passed untouched: a protocol that is not translated";
    /// An ICMP error was translated.
    IcmpError = "icmp-error", "an ICMP error about a packet of a flow was translated";
    /// Passed: ICMP error of no flow.
    PassIcmpError = "pass-icmp-error", "passed untouched: an ICMP error about a Service's packet that is of no known flow or cannot be read";
    /// Passed: the node's own traffic from the port of a frontend.
    PassOwn = "pass-own-address", "traffic of the node itself from the port of a Service at its own address was noted";
    /// Passed: no frontend at this port.
    PassNoFrontend = "pass-no-frontend", "passed untouched: a Service address, but no such port";
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
}
