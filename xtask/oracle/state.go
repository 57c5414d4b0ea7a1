package main

import (
	"net/netip"
	"slices"
)

// object is an API object.
type object = map[string]any

// state is a case: a cluster as seen from one node, and packets that come to that node.
type state struct {
	// Objects of the cluster, the Node and ServiceCIDRs among them.
	Objects []object `json:"objects"`
	// Config is the KubeProxyConfiguration, without the way to the API server.
	Config object `json:"config"`
	// Node is the name of the node.
	Node string `json:"node"`
	// HasZone says that the Node has a zone.
	HasZone bool `json:"hasZone"`
	// Addresses of the node's interface to the outside.
	Addresses []netip.Addr `json:"addresses"`
	// Pods are the addresses behind the node's interface to its pods.
	Pods []netip.Addr `json:"pods"`
	// Ports where datagrams may be delivered on the node itself.
	Ports   []uint16 `json:"ports"`
	Packets []packet `json:"packets"`
}

// packet is the first packet of flows.
type packet struct {
	Proto uint8      `json:"proto"`
	From  netip.Addr `json:"from"`
	In    entry      `json:"in"`
	To    netip.Addr `json:"to"`
	Port  uint16     `json:"port"`
	// Flows is how many flows to open.
	Flows int `json:"flows"`
}

// entry is where a packet comes in.
type entry string

const (
	fromPod     entry = "pod"
	fromHost    entry = "host"
	fromOutside entry = "external"
)

// isOwn tells whether the node has this address.
func (s *state) isOwn(addr netip.Addr) bool {
	return addr.IsLoopback() || slices.Contains(s.Addresses, addr)
}

// outcome is what became of some flows of a packet.
type outcome struct {
	Verdict string `json:"verdict"`
	// To is where the packet went, for verdict forward.
	To string `json:"to,omitempty"`
	// Address says that the source address was rewritten, Port that the source port was.
	Address bool `json:"address"`
	Port    bool `json:"port"`
	// Problem says how pieces of evidence contradict each other.
	Problem string `json:"problem,omitempty"`
	Flows   int    `json:"flows"`
}
