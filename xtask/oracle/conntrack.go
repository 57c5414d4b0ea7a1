package main

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes of connections, from linux/netfilter/nfnetlink_conntrack.h, which the libraries do not name.
const (
	tupleOriginal, tupleReply                  = 1, 2
	tupleAddresses, tuplePorts                 = 1, 2
	protoNumber, protoSource, protoDestination = 1, 2, 3
	// typeMask leaves the flags of an attribute out.
	typeMask = 0x3fff
	// newGroup is the multicast group of connections that have begun.
	newGroup = 1
)

// listen opens a socket that hears of each connection that begins in the namespace. One begins when its first packet has passed
// all rules.
func listen() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, err
	}
	if err = room(fd); err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (newGroup - 1)})
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// begun calls back for each connection in what the socket has received.
func begun(data []byte, tell func(original, reply flow)) error {
	messages, err := syscall.ParseNetlinkMessage(data)
	if err != nil {
		return err
	}
	for _, message := range messages {
		if message.Header.Type>>8 != unix.NFNL_SUBSYS_CTNETLINK || len(message.Data) < nl.SizeofNfgenmsg {
			continue
		}
		found, err := attributes(message.Data[nl.SizeofNfgenmsg:])
		if err != nil {
			return err
		}
		original, err := flowIn(found[tupleOriginal])
		if err != nil {
			return err
		}
		reply, err := flowIn(found[tupleReply])
		if err != nil {
			return err
		}
		tell(original, reply)
	}
	return nil
}

func attributes(data []byte) (map[uint16][]byte, error) {
	all, err := nl.ParseRouteAttr(data)
	if err != nil {
		return nil, err
	}
	found := map[uint16][]byte{}
	for _, attribute := range all {
		found[attribute.Attr.Type&typeMask] = attribute.Value
	}
	return found, nil
}

func flowIn(data []byte) (flow, error) {
	tuple, err := attributes(data)
	if err != nil {
		return flow{}, err
	}
	addresses, err := attributes(tuple[tupleAddresses])
	if err != nil {
		return flow{}, err
	}
	own, err := attributes(tuple[tuplePorts])
	if err != nil {
		return flow{}, err
	}
	addr := func(v4, v6 uint16) netip.Addr {
		addr, _ := netip.AddrFromSlice(append(addresses[v4], addresses[v6]...))
		return addr
	}
	port := func(which uint16) uint16 {
		if value := own[which]; len(value) == 2 {
			return binary.BigEndian.Uint16(value)
		}
		return 0
	}
	f := flow{
		from: netip.AddrPortFrom(addr(1, 3), port(protoSource)),
		to:   netip.AddrPortFrom(addr(2, 4), port(protoDestination)),
	}
	if number := own[protoNumber]; len(number) == 1 {
		f.proto = number[0]
	}
	return f, nil
}
