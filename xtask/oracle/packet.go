package main

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"golang.org/x/sys/unix"
)

// flow is one direction of a flow.
type flow struct {
	proto    uint8
	from, to netip.AddrPort
}

// back is the other direction.
func (f flow) back() flow { return flow{f.proto, f.to, f.from} }

// token comes before the number of a flow in its datagrams. In TCP the number is the sequence number, in SCTP the initiate tag:
// no translation changes these.
const token = "lottery:"

const (
	fin, syn, rst, ack = 1, 2, 4, 16
	// initiate and abort are types of SCTP chunks.
	initiate, abort = 1, 6
)

// first is the first IP packet of a flow.
func first(f flow, number uint32) []byte {
	be := binary.BigEndian
	segment := make([]byte, 4, 64)
	be.PutUint16(segment[0:], f.from.Port())
	be.PutUint16(segment[2:], f.to.Port())
	checksum := -1
	switch f.proto {
	case unix.IPPROTO_TCP:
		segment = be.AppendUint32(segment, number)
		segment = append(segment, 0, 0, 0, 0, 5<<4, syn, 0xff, 0xff, 0, 0, 0, 0)
		checksum = 16
	case unix.IPPROTO_UDP:
		segment = append(segment, 0, 8+byte(len(token))+4, 0, 0)
		segment = be.AppendUint32(append(segment, token...), number)
		checksum = 6
	case unix.IPPROTO_SCTP:
		// No verification tag; the checksum comes last. One chunk: tag, window, streams, sequence number.
		segment = append(segment, 0, 0, 0, 0, 0, 0, 0, 0, initiate, 0, 0, 20)
		segment = be.AppendUint32(segment, number)
		segment = append(segment, 0, 1, 0, 0, 0, 1, 0, 1)
		segment = be.AppendUint32(segment, number)
		binary.LittleEndian.PutUint32(segment[8:], crc32.Checksum(segment, crc32.MakeTable(crc32.Castagnoli)))
	}
	from, to := f.from.Addr().AsSlice(), f.to.Addr().AsSlice()
	if checksum >= 0 {
		pseudo := append(append([]byte{}, from...), to...)
		pseudo = append(pseudo, 0, f.proto, byte(len(segment)>>8), byte(len(segment)))
		sum := onesComplement(append(pseudo, segment...))
		if sum == 0 {
			sum = 0xffff
		}
		be.PutUint16(segment[checksum:], sum)
	}
	if f.from.Addr().Is6() {
		header := []byte{0x60, 0, 0, 0, 0, byte(len(segment)), f.proto, 64}
		return append(append(append(header, from...), to...), segment...)
	}
	header := append([]byte{0x45, 0, 0, byte(20 + len(segment)), 0, 0, 0, 0, 64, f.proto, 0, 0}, append(from, to...)...)
	be.PutUint16(header[10:], onesComplement(header))
	return append(header, segment...)
}

// frame is an IP packet behind an Ethernet header.
func frame(to []byte, packet []byte) []byte {
	kind := uint16(unix.ETH_P_IP)
	if packet[0]>>4 == 6 {
		kind = unix.ETH_P_IPV6
	}
	header := append(append([]byte{}, to...), 2, 0, 0, 0, 0, 9)
	return append(binary.BigEndian.AppendUint16(header, kind), packet...)
}

func onesComplement(data []byte) uint16 {
	if len(data)%2 == 1 {
		data = append(data, 0)
	}
	sum := uint32(0)
	for ; len(data) > 0; data = data[2:] {
		sum += uint32(binary.BigEndian.Uint16(data))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// sight is what a packet on a link means.
type sight struct {
	kind sightKind
	// number of the flow, where the packet has it.
	number uint32
	// flow as the packet has it; of an error, the flow that the error is about.
	flow flow
}

type sightKind int

const (
	nothing sightKind = iota
	// opening is the first packet of a flow, translated or not.
	opening
	// response comes from where TCP or SCTP is at home.
	response
	// unreachable is what kube-proxy refuses by: no such port.
	unreachable
	// unknownProtocol is how a host answers that has no SCTP.
	unknownProtocol
	// otherError is any other ICMP error.
	otherError
)

// look tells what an IP packet means.
func look(packet []byte) sight {
	proto, from, to, segment := split(packet)
	if len(segment) < 8 {
		return sight{}
	}
	f := ports(proto, from, to, segment)
	be := binary.BigEndian
	switch {
	case proto == unix.IPPROTO_ICMP || proto == unix.IPPROTO_ICMPV6:
		kind := meaning(proto, segment[0], segment[1])
		innerProto, innerFrom, innerTo, inner := split(segment[8:])
		if kind == nothing || len(inner) < 4 {
			return sight{}
		}
		return sight{kind: kind, flow: ports(innerProto, innerFrom, innerTo, inner)}
	case proto == unix.IPPROTO_TCP && len(segment) >= 20:
		switch flags := segment[13] & (fin | syn | rst | ack); {
		case flags == syn:
			return sight{opening, be.Uint32(segment[4:]), f}
		case flags&rst != 0, flags == syn|ack:
			return sight{response, be.Uint32(segment[8:]) - 1, f}
		}
	case proto == unix.IPPROTO_UDP:
		if number, ours := numberIn(segment[8:]); ours {
			return sight{opening, number, f}
		}
	case proto == unix.IPPROTO_SCTP && len(segment) >= 20 && segment[12] == initiate:
		return sight{opening, be.Uint32(segment[16:]), f}
	case proto == unix.IPPROTO_SCTP && len(segment) >= 16 && segment[12] == abort:
		// An answer carries the tag of the one who asked.
		return sight{response, be.Uint32(segment[4:]), f}
	}
	return sight{}
}

// numberIn is the number of the flow in a datagram's payload, if it is one of ours.
func numberIn(payload []byte) (uint32, bool) {
	if len(payload) < len(token)+4 || string(payload[:len(token)]) != token {
		return 0, false
	}
	return binary.BigEndian.Uint32(payload[len(token):]), true
}

func meaning(proto, kind, code uint8) sightKind {
	isV6 := proto == unix.IPPROTO_ICMPV6
	switch {
	case !isV6 && kind == 3 && code == 3, isV6 && kind == 1 && code == 4:
		return unreachable
	case !isV6 && kind == 3 && code == 2, isV6 && kind == 4 && code == 1:
		return unknownProtocol
	case isV6 && kind < 128, !isV6 && (kind == 3 || kind == 4 || kind == 5 || kind == 11 || kind == 12):
		return otherError
	}
	return nothing
}

// split takes an IP packet apart; the segment is empty where there is none.
func split(packet []byte) (proto uint8, from, to netip.Addr, segment []byte) {
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		from, _ = netip.AddrFromSlice(packet[12:16])
		to, _ = netip.AddrFromSlice(packet[16:20])
		if length := int(packet[0]&15) * 4; len(packet) >= length {
			segment = packet[length:]
		}
		return packet[9], from, to, segment
	case len(packet) >= 40 && packet[0]>>4 == 6:
		from, _ = netip.AddrFromSlice(packet[8:24])
		to, _ = netip.AddrFromSlice(packet[24:40])
		return packet[6], from, to, packet[40:]
	}
	return
}

func ports(proto uint8, from, to netip.Addr, segment []byte) flow {
	port := func(at int) uint16 { return binary.BigEndian.Uint16(segment[at:]) }
	return flow{proto, netip.AddrPortFrom(from, port(0)), netip.AddrPortFrom(to, port(2))}
}
