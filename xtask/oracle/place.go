package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// place is a network namespace with a thread of its own. It has no name, and ends with its last thread and socket.
type place struct {
	work chan func()
	// fd leads to the namespace.
	fd int
}

func newPlace() (*place, error) {
	p := &place{work: make(chan func())}
	ready := make(chan error)
	go func() {
		// Never unlocked, so the thread ends with this function.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			p.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		ready <- err
		for do := range p.work {
			do()
		}
	}()
	if err := <-ready; err != nil {
		close(p.work)
		return nil, fmt.Errorf("a network namespace: %w", err)
	}
	return p, nil
}

// do calls a function in the namespace. Sockets that it opens and processes that it starts stay there.
func (p *place) do(f func() error) error {
	done := make(chan error)
	p.work <- func() { done <- f() }
	return <-done
}

func (p *place) close() {
	unix.Close(p.fd)
	close(p.work)
}

// set writes settings below /proc/sys/net of the namespace. One that ends in a question mark may be missing.
func (p *place) set(settings map[string]string) error {
	return p.do(func() error {
		for name, value := range settings {
			optional := name[len(name)-1] == '?'
			if optional {
				name = name[:len(name)-1]
			}
			err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0)
			if err != nil && !(optional && os.IsNotExist(err)) {
				return err
			}
		}
		return nil
	})
}
