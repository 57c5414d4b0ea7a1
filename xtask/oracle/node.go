package main

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

const (
	// outside is the node's interface to the outside, with its addresses and default routes.
	outside = "eth0"
	// pods is its interface to its pods, without an address.
	pods = "pods"
)

// node is the node, and what is at the other ends of its two links: nobody. Frames are put on the links there, and taken off.
type node struct {
	here, beyond *place
}

// macs are the hardware addresses of the node's interfaces.
var macs = map[string]net.HardwareAddr{outside: {2, 0, 0, 0, 1, 1}, pods: {2, 0, 0, 0, 1, 2}}

func newNode(s *state) (*node, error) {
	n := &node{}
	var err error
	if n.here, err = newPlace(); err != nil {
		return nil, err
	}
	if n.beyond, err = newPlace(); err != nil {
		n.close()
		return nil, err
	}
	if err := n.build(s); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *node) close() {
	for _, p := range []*place{n.here, n.beyond} {
		if p != nil {
			p.close()
		}
	}
}

// router makes a router of the node that answers whatever it refuses at once, and tells of every connection. The rest is
// kube-proxy's own affair.
var router = map[string]string{
	"ipv4/ip_forward":                                  "1",
	"ipv4/conf/all/rp_filter":                          "0",
	"ipv4/conf/default/rp_filter":                      "0",
	"ipv4/conf/all/send_redirects":                     "0",
	"ipv4/conf/default/send_redirects":                 "0",
	"ipv4/icmp_ratelimit":                              "0",
	"ipv4/icmp_msgs_per_sec":                           "1000000",
	"ipv4/icmp_msgs_burst":                             "1000000",
	"ipv6/icmp/ratelimit":                              "0",
	"ipv6/conf/all/forwarding":                         "1",
	"ipv6/conf/default/forwarding":                     "1",
	"ipv6/conf/default/accept_dad":                     "0",
	"ipv6/conf/default/addr_gen_mode":                  "1",
	"netfilter/nf_conntrack_events":                    "1",
	"netfilter/nf_conntrack_udp_timeout":               "120",
	"netfilter/nf_conntrack_sctp_timeout_cookie_wait?": "120",
}

func (n *node) build(s *state) error {
	silent := map[string]string{"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1"}
	if err := errors.Join(n.here.set(router), n.beyond.set(silent)); err != nil {
		return err
	}
	here, err := netlink.NewHandleAt(netns.NsHandle(n.here.fd))
	if err != nil {
		return err
	}
	defer here.Close()
	beyond, err := netlink.NewHandleAt(netns.NsHandle(n.beyond.fd))
	if err != nil {
		return err
	}
	defer beyond.Close()
	lo, err := here.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := here.LinkSetUp(lo); err != nil {
		return err
	}
	links := map[string]netlink.Link{}
	for name, mac := range macs {
		if links[name], err = connect(here, beyond, n.beyond, name, mac); err != nil {
			return err
		}
	}
	for _, addr := range s.Addresses {
		// No duplicate address detection: the address is there at once.
		own := &netlink.Addr{IPNet: host(addr), Flags: 0x02}
		if err := here.AddrAdd(links[outside], own); err != nil {
			return err
		}
	}
	routes := map[string][]*net.IPNet{outside: {prefix("0.0.0.0/0"), prefix("::/0")}}
	for _, addr := range s.Pods {
		routes[pods] = append(routes[pods], host(addr))
	}
	for name, all := range routes {
		for _, to := range all {
			route := &netlink.Route{LinkIndex: links[name].Attrs().Index, Dst: to, Scope: netlink.SCOPE_LINK}
			if err := here.RouteAdd(route); err != nil {
				return err
			}
		}
	}
	return nil
}

// connect makes a link between the node and nobody. It has no address resolution, for nobody would answer.
func connect(here, beyond *netlink.Handle, peer *place, name string, mac net.HardwareAddr) (netlink.Link, error) {
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: name, HardwareAddr: mac},
		PeerName:      name,
		PeerNamespace: netlink.NsFd(peer.fd),
	}
	if err := here.LinkAdd(veth); err != nil {
		return nil, err
	}
	link, err := here.LinkByName(name)
	if err != nil {
		return nil, err
	}
	end, err := beyond.LinkByName(name)
	if err != nil {
		return nil, err
	}
	return link, errors.Join(here.LinkSetARPOff(link), here.LinkSetUp(link), beyond.LinkSetUp(end))
}

func host(addr netip.Addr) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
}

func prefix(text string) *net.IPNet {
	_, prefix, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return prefix
}
