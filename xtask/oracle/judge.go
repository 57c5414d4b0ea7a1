package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	forward = "forward"
	pass    = "pass"
	reject  = "reject"
	drop    = "drop"
)

// judge tells what became of the flows of a packet, alike ones as one.
func (w *witness) judge(traces []*trace) []outcome {
	outcomes := []outcome{}
	place := map[outcome]int{}
	for _, t := range traces {
		one := w.state.judge(t)
		at, known := place[one]
		if !known {
			at = len(outcomes)
			place[one] = at
			outcomes = append(outcomes, one)
		}
		outcomes[at].Flows++
	}
	return outcomes
}

// judge puts together what is known of a flow: conntrack's word, its way out, what came back. They have to agree.
func (s *state) judge(t *trace) outcome {
	if !t.isBegun {
		o := stopped(t)
		if len(t.left) > 0 {
			o.Problem = fmt.Sprintf("seen as %v, and conntrack does not know it", t.left[0])
		}
		return o
	}
	now := t.reply.back()
	o := outcome{
		Verdict: pass,
		Address: now.from.Addr() != t.sent.from.Addr(),
		Port:    now.from.Port() != t.sent.from.Port(),
	}
	if now.to != t.sent.to {
		o.Verdict, o.To = forward, now.to.String()
	}
	problem := ""
	for _, left := range t.left {
		if left != now {
			problem = fmt.Sprintf("seen as %v, and conntrack has %v", left, now)
		}
	}
	if len(t.left) > 1 {
		problem = fmt.Sprintf("seen %d times", len(t.left))
	}
	switch {
	case !s.isOwn(now.to.Addr()):
		if len(t.left) == 0 {
			o, problem = stopped(t), fmt.Sprintf("conntrack has %v, which has not left the node", now)
		}
	case s.delivered(t):
		if len(t.left) > 0 && !t.looped {
			problem = fmt.Sprintf("%v has left the node, and is for the node", now)
		}
	default:
		// From the node to itself, conntrack lets it begin before the rules for what comes in.
		o = stopped(t)
	}
	o.Problem = problem
	return o
}

// delivered tells whether the packet has come to where it could be answered on the node.
func (s *state) delivered(t *trace) bool {
	return t.delivered || t.sent.proto == unix.IPPROTO_SCTP && t.refusal == unknownProtocol
}

// stopped is the outcome of a flow that went nowhere.
func stopped(t *trace) outcome {
	switch {
	case t.refusal == unreachable:
		return outcome{Verdict: reject}
	case t.refusal != nothing || t.delivered:
		return outcome{Verdict: reject, Problem: "refused by something else than port unreachable"}
	}
	return outcome{Verdict: drop}
}
