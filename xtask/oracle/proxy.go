package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
)

const (
	apiAddress = "127.0.0.1:6443"
	// patience is how long kube-proxy may take to its first rules.
	patience = 2 * time.Minute
	// late is how much later than everything else the Node's zone may be.
	late = 2 * time.Second
	// starts is how often kube-proxy may lose the Node's zone.
	starts = 5
)

// kubeProxy is the real command.
func kubeProxy(arguments []string) int {
	command := app.NewProxyCommand()
	command.SetArgs(arguments)
	return cli.Run(command)
}

func typesUID(i int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)) }

// proxy is a running kube-proxy.
type proxy struct {
	api     *apiServer
	command *exec.Cmd
	folder  string
	// lines of its log; closed at its end.
	lines chan string
	last  []string
}

// errNoZone says that kube-proxy has missed the Node's zone. It asks for the Node before it is ready to hear of its labels, and
// what comes in between is lost until they change.
var errNoZone = errors.New("kube-proxy has missed the zone of its Node again and again")

// startProxy returns when the rules for everything in the state are in the kernel.
func startProxy(s *state, n *node) (*proxy, error) {
	for range starts {
		p := &proxy{lines: make(chan string, 1024)}
		err := p.start(s, n)
		if err == nil {
			err = p.await(s)
		}
		if err == nil {
			// Whatever it says from now on is of no interest.
			go func() {
				for range p.lines {
				}
			}()
			return p, nil
		}
		p.stop()
		if !errors.Is(err, errNoZone) {
			return nil, fmt.Errorf("%w; its log ends with:\n%s", err, strings.Join(p.last, "\n"))
		}
	}
	return nil, errNoZone
}

func (p *proxy) start(s *state, n *node) error {
	var err error
	if p.folder, err = os.MkdirTemp("", "kube-lottery-oracle-"); err != nil {
		return err
	}
	config := object{}
	for key, value := range s.Config {
		config[key] = value
	}
	kubeconfig := filepath.Join(p.folder, "kubeconfig")
	config["clientConnection"] = object{
		"kubeconfig": kubeconfig, "contentType": "application/json", "acceptContentTypes": "application/json",
	}
	name := filepath.Join(p.folder, "config")
	err = errors.Join(writeJSON(name, config), writeJSON(kubeconfig, object{
		"apiVersion": "v1", "kind": "Config", "current-context": "oracle",
		"clusters": []object{{"name": "oracle", "cluster": object{"server": "http://" + apiAddress}}},
		"contexts": []object{{"name": "oracle", "context": object{"cluster": "oracle"}}},
	}))
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.command = exec.Command(self, runProxy, "--config="+name, "--hostname-override="+s.Node, "--v=4")
	// It ends with the thread of the namespace, whatever happens to this process.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := p.command.StderrPipe()
	if err != nil {
		return err
	}
	err = n.here.do(func() error {
		listener, err := net.Listen("tcp", apiAddress)
		if err != nil {
			return err
		}
		p.api = newAPIServer(s, listener)
		return p.command.Start()
	})
	if err != nil {
		return err
	}
	go p.follow(log)
	return nil
}

func (p *proxy) follow(log io.Reader) {
	defer close(p.lines)
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		p.lines <- lines.Text()
	}
}

var synced = regexp.MustCompile(`"SyncProxyRules complete" ipFamily="(IPv[46])"`)

// await follows the log. kube-proxy does not wait for ServiceCIDRs and the Node's zone before it writes its first rules, and may
// leave it at those. So Services and EndpointSlices are kept back until it has both, and the rules that come then are the ones.
func (p *proxy) await(s *state) error {
	cidrs, zones := 1, 0
	for _, own := range s.Objects {
		if own["kind"] == "ServiceCIDR" {
			cidrs++
		}
	}
	if s.HasZone {
		// Once for each family.
		zones = 2
	}
	end := time.After(patience)
	var zoneEnd <-chan time.Time
	isOpen := false
	families := map[string]bool{}
	for len(families) < 2 {
		select {
		case line, more := <-p.lines:
			if !more {
				return errors.New("kube-proxy has ended")
			}
			p.last = append(p.last, line)
			p.last = p.last[max(0, len(p.last)-3):]
			switch {
			case strings.Contains(line, `"Calling handler.OnServiceCIDRsChanged"`):
				cidrs--
			case strings.Contains(line, `"Updated proxier node topology labels"`):
				zones--
			case strings.Contains(line, `"Sync failed"`):
				return errors.New("kube-proxy could not write its rules")
			}
			if found := synced.FindStringSubmatch(line); isOpen && found != nil {
				families[found[1]] = true
			}
			if isOpen || cidrs > 0 {
				continue
			}
			if zones <= 0 {
				isOpen = true
				close(p.api.open)
			} else if zoneEnd == nil {
				zoneEnd = time.After(late)
			}
		case <-zoneEnd:
			if !isOpen {
				return errNoZone
			}
		case <-end:
			return fmt.Errorf("kube-proxy has written no rules within %v", patience)
		}
	}
	return nil
}

func (p *proxy) stop() {
	if p.command != nil && p.command.Process != nil {
		p.command.Process.Kill()
		for range p.lines {
		}
		p.command.Wait()
	}
	if p.api != nil {
		p.api.close()
	}
	os.RemoveAll(p.folder)
}

func writeJSON(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}
