package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// firstPort is the source port of the first flow of a case; every flow has its own.
	firstPort = 2048
	// atOnce is how many packets are sent before one waits for them, fewer than the kernel queues.
	atOnce = 200
	// fenceAgain is when a fence that did not come is sent anew.
	fenceAgain = 500 * time.Millisecond
	// fenceEnd is when it is given up.
	fenceEnd = 20 * time.Second
	// quiet is how long nothing must have come in the end.
	quiet = 20 * time.Millisecond
)

// A fence is a datagram that is no proxy's concern, sent by the same way as the packets before it: where it has come out, the
// kernel is done with those.
var (
	fenceFrom = netip.MustParseAddr("198.18.0.1")
	fenceTo   = netip.MustParseAddrPort("198.18.0.2:9")
)

// trace is a flow of a packet, and what was seen of it.
type trace struct {
	sent flow
	// reply is the other direction as conntrack has it, which announces what has passed all rules.
	reply   flow
	isBegun bool
	// left is how it was seen to leave the node, by a link or over loopback.
	left []flow
	// looped says that it was seen on loopback.
	looped bool
	// refusal is the ICMP error that came back.
	refusal sightKind
	// delivered says that a socket of the node got it, or its TCP answered.
	delivered bool
}

// witness sends packets to the node and sees what becomes of them.
type witness struct {
	state *state
	links map[string]int
	// index of the interfaces beyond the links.
	index  map[string]int
	events int
	raw    map[bool]int
	sinks  []int
	fences uint32
	traces []*trace
	known  map[flow]*trace
	buffer []byte
}

const loopback = "lo"

func newWitness(s *state, n *node) (*witness, error) {
	w := &witness{
		state: s, links: map[string]int{}, index: map[string]int{}, events: -1, raw: map[bool]int{},
		known: map[flow]*trace{}, buffer: make([]byte, 1<<16),
	}
	err := n.beyond.do(func() error { return errors.Join(w.capture(outside), w.capture(pods)) })
	if err == nil {
		err = n.here.do(w.openHere)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *witness) openHere() (err error) {
	if err := w.capture(loopback); err != nil {
		return err
	}
	for isV6, family := range map[bool]int{false: unix.AF_INET, true: unix.AF_INET6} {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		w.raw[isV6] = fd
	}
	if w.events, err = listen(); err != nil {
		return err
	}
	// Where nobody listens the kernel refuses datagrams just as kube-proxy does.
	for _, port := range w.state.Ports {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		w.sinks = append(w.sinks, fd)
		both := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
		if err := errors.Join(both, room(fd), unix.Bind(fd, &unix.SockaddrInet6{Port: int(port)})); err != nil {
			return fmt.Errorf("UDP port %d: %w", port, err)
		}
	}
	return nil
}

func (w *witness) capture(name string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	w.links[name], w.index[name] = fd, link.Index
	return errors.Join(room(fd), unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: link.Index}))
}

// room keeps the kernel from losing what is not read at once.
func room(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20)
}

func (w *witness) close() {
	for _, fd := range w.links {
		unix.Close(fd)
	}
	for _, fd := range w.raw {
		unix.Close(fd)
	}
	for _, fd := range append(w.sinks, w.events) {
		unix.Close(fd)
	}
}

// show sends all flows of all packets.
func (w *witness) show(packets []packet) ([][]outcome, error) {
	if err := stayOnOneCPU(); err != nil {
		return nil, err
	}
	var traces [][]*trace
	for _, p := range packets {
		own, err := w.send(p)
		if err != nil {
			return nil, fmt.Errorf("%s packet %v to %v port %d: %w", p.In, p.From, p.To, p.Port, err)
		}
		traces = append(traces, own)
	}
	if _, err := w.read(0, quiet); err != nil {
		return nil, err
	}
	outcomes := make([][]outcome, len(packets))
	for i, own := range traces {
		outcomes[i] = w.judge(own)
	}
	return outcomes, nil
}

// turn is whose turn it is to be stayed on.
var turn atomic.Int64

// stayOnOneCPU keeps the calling goroutine on one CPU, where the kernel handles packets in the order in which they are sent.
func stayOnOneCPU() error {
	runtime.LockOSThread()
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &allowed); err != nil {
		return err
	}
	skip := int(turn.Add(1)) % allowed.Count()
	cpu := 0
	for ; !allowed.IsSet(cpu) || skip > 0; cpu++ {
		if allowed.IsSet(cpu) {
			skip--
		}
	}
	one.Set(cpu)
	return unix.SchedSetaffinity(0, &one)
}

func (w *witness) send(p packet) ([]*trace, error) {
	var own []*trace
	for i := range p.Flows {
		port := firstPort + len(w.traces)
		if port > 65535 {
			return nil, errors.New("there are more flows than ports")
		}
		t := &trace{sent: flow{p.Proto, netip.AddrPortFrom(p.From, uint16(port)), netip.AddrPortFrom(p.To, p.Port)}}
		w.traces = append(w.traces, t)
		w.known[t.sent] = t
		own = append(own, t)
		if err := w.put(p.In, t.sent, uint32(len(w.traces))); err != nil {
			return nil, err
		}
		if i%atOnce == atOnce-1 || i == p.Flows-1 {
			if err := w.fence(p.In); err != nil {
				return nil, err
			}
		}
	}
	return own, nil
}

// put sends the first packet of a flow.
func (w *witness) put(in entry, f flow, number uint32) error {
	data := first(f, number)
	to := f.to.Addr()
	if in == fromHost {
		var err error
		if to.Is6() {
			err = unix.Sendto(w.raw[true], data, 0, &unix.SockaddrInet6{Addr: to.As16()})
		} else {
			err = unix.Sendto(w.raw[false], data, 0, &unix.SockaddrInet4{Addr: to.As4()})
		}
		if errors.Is(err, unix.EPERM) {
			// A rule has dropped it.
			return nil
		}
		return err
	}
	name := outside
	if in == fromPod {
		name = pods
	}
	return unix.Sendto(w.links[name], frame(macs[name], data), 0, &unix.SockaddrLinklayer{Ifindex: w.index[name]})
}

// fence waits until the kernel is done with all packets before.
func (w *witness) fence(in entry) error {
	w.fences++
	// Flows count up from 1, fences down from the largest number.
	number := -w.fences
	port := uint16(firstPort + w.fences%(1<<15))
	f := flow{unix.IPPROTO_UDP, netip.AddrPortFrom(fenceFrom, port), fenceTo}
	for end := time.Now().Add(fenceEnd); time.Now().Before(end); {
		if err := w.put(in, f, number); err != nil {
			return err
		}
		if came, err := w.read(number, fenceAgain); came || err != nil {
			return err
		}
	}
	return errors.New("the node forwards nothing any more")
}

// read takes in what there is until a fence comes out, or nothing has come for a while.
func (w *witness) read(fence uint32, patience time.Duration) (bool, error) {
	var polled []unix.PollFd
	var take []func([]byte, unix.Sockaddr) error
	watch := func(fd int, f func([]byte, unix.Sockaddr) error) {
		polled = append(polled, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		take = append(take, f)
	}
	came := false
	for name, fd := range w.links {
		watch(fd, func(data []byte, from unix.Sockaddr) error {
			link, ok := from.(*unix.SockaddrLinklayer)
			// Beyond a link, what the node sends comes in; on loopback everything shows in both directions.
			if !ok || len(data) < 14 || (link.Pkttype == unix.PACKET_OUTGOING) != (name == loopback) {
				return nil
			}
			s := look(data[14:])
			came = came || fence != 0 && s.kind == opening && s.number == fence
			w.note(s, name)
			return nil
		})
	}
	for _, fd := range w.sinks {
		watch(fd, func(data []byte, _ unix.Sockaddr) error {
			if number, ours := numberIn(data); ours {
				if t := w.trace(number); t != nil {
					t.delivered = true
				}
			}
			return nil
		})
	}
	watch(w.events, func(data []byte, _ unix.Sockaddr) error {
		return begun(data, func(original, reply flow) {
			if t := w.known[original]; t != nil {
				t.isBegun, t.reply = true, reply
			}
		})
	})
	for !came {
		n, err := unix.Poll(polled, int(patience.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, err
		}
		if n == 0 {
			return false, nil
		}
		for i, own := range polled {
			for own.Revents != 0 {
				length, from, err := unix.Recvfrom(int(own.Fd), w.buffer, 0)
				if errors.Is(err, unix.EAGAIN) {
					break
				}
				if err == nil {
					err = take[i](w.buffer[:length], from)
				}
				if err != nil {
					return false, err
				}
			}
		}
	}
	return true, nil
}

func (w *witness) trace(number uint32) *trace {
	if number == 0 || int64(number) > int64(len(w.traces)) {
		return nil
	}
	return w.traces[number-1]
}

func (w *witness) note(s sight, link string) {
	if s.kind == nothing {
		return
	}
	if s.kind != opening && s.kind != response {
		if t := w.known[s.flow]; t != nil {
			t.refusal = s.kind
		}
		return
	}
	t := w.trace(s.number)
	if t == nil || t.sent.proto != s.flow.proto {
		return
	}
	if s.kind == response {
		t.delivered = true
		return
	}
	t.left = append(t.left, s.flow)
	t.looped = t.looped || link == loopback
}
