// Command oracle shows packets to the real kube-proxy and says what became of them.
//
// It reads a list of cases as JSON from its standard input, and writes one line of JSON for each, in their order. For every case
// it makes a node out of network namespaces that nobody else can enter, and runs the unmodified kube-proxy there, against an API
// server in this process. The namespaces have no names, so they end with this process, however it ends.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
)

// runProxy as first argument makes this program the real kube-proxy.
const runProxy = "kube-proxy"

func main() {
	if slices.Index(os.Args, runProxy) == 1 {
		os.Exit(kubeProxy(os.Args[2:]))
	}
	parallel := flag.Int("j", runtime.NumCPU(), "cases at a time")
	flag.Parse()
	if err := observeAll(*parallel); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(2)
	}
}

// answer is what became of the packets of a case.
type answer struct {
	Packets [][]outcome `json:"packets"`
	// Error says why the case could not be looked at.
	Error string `json:"error,omitempty"`
}

func observeAll(parallel int) error {
	var cases []*state
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		return fmt.Errorf("cases: %w", err)
	}
	answers := make([]chan answer, len(cases))
	for i := range answers {
		answers[i] = make(chan answer, 1)
	}
	var next int
	var mutex sync.Mutex
	take := func() int {
		mutex.Lock()
		defer mutex.Unlock()
		next++
		return next - 1
	}
	for range parallel {
		go func() {
			for i := take(); i < len(cases); i = take() {
				packets, err := observe(cases[i])
				a := answer{Packets: packets}
				if err != nil {
					a = answer{Error: err.Error()}
				}
				answers[i] <- a
			}
		}()
	}
	lines := json.NewEncoder(os.Stdout)
	for _, answered := range answers {
		if err := lines.Encode(<-answered); err != nil {
			return err
		}
	}
	return nil
}

// observe shows the packets of a case to kube-proxy.
func observe(s *state) ([][]outcome, error) {
	n, err := newNode(s)
	if err != nil {
		return nil, fmt.Errorf("the node: %w", err)
	}
	defer n.close()
	proxy, err := startProxy(s, n)
	if err != nil {
		return nil, err
	}
	defer proxy.stop()
	w, err := newWitness(s, n)
	if err != nil {
		return nil, fmt.Errorf("sockets: %w", err)
	}
	defer w.close()
	return w.show(s.Packets)
}
