package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"netemd/internal/child"
	"netemd/internal/target"
)

// KeeperName is the child that ends what the agent made on the Toxiproxies of others, which
// know no deadline and do not see the agent's end: when its standard input ends, and at the
// deadlines of an agent that was stopped.
const KeeperName = "toxic-keeper"

func init() { child.Register(KeeperName, keeperMain) }

// lateness is how long after its deadline a fault is the agent's to end, which does it at once
// unless it was stopped.
const lateness = time.Second

// charge is a line on the keeper's standard input: what is to be taken away, or is gone.
type charge struct {
	Proxy    target.Toxiproxy `json:"proxy"`
	Disabled bool             `json:"disabled"`
	// LeftNS is the time to the deadline, so that setting the wall clock moves nothing; 0: it
	// is gone.
	LeftNS   int64     `json:"left_ns"`
	deadline time.Time // as the sender, or the reader, has it
}

// in says the charge's time as of now.
func (c charge) in() charge {
	if !c.deadline.IsZero() {
		c.LeftNS = max(1, int64(time.Until(c.deadline)))
	}
	return c
}

// Keeper is the child as the agent has it, started with the first charge. The zero value
// works; it is safe for concurrent use.
type Keeper struct {
	Remote *Remote // whose marks are to be taken away
	Allow  []netip.Prefix

	mu      sync.Mutex
	process *child.Process
	charges map[string]charge // by the proxies' texts
}

// Watch is for Remote.Watch. When it returns, the keeper has read the charge, or will, also
// when this process ends. A keeper that was killed is started anew.
func (k *Keeper) Watch(_ context.Context, p target.Toxiproxy, deadline time.Time, disabled bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.charges == nil {
		k.charges = map[string]charge{}
	}
	c := charge{Proxy: p, Disabled: disabled, deadline: deadline}
	if k.charges[p.String()] = c; deadline.IsZero() {
		delete(k.charges, p.String())
	}
	if k.process != nil && k.send(c) == nil {
		return nil
	}
	k.end()
	if len(k.charges) == 0 {
		return nil
	}
	if err := k.start(); err != nil {
		return fmt.Errorf("toxic keeper: %w", err)
	}
	for _, c := range k.charges {
		if err := k.send(c); err != nil {
			return fmt.Errorf("toxic keeper: %w", err)
		}
	}
	return nil
}

func (k *Keeper) start() (err error) {
	allow := []string{}
	for _, p := range k.Allow {
		allow = append(allow, p.String())
	}
	none, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = none.Close() }()
	k.process, err = child.Start("", child.Options{Survive: true, Stdout: none, Stderr: os.Stderr}, KeeperName,
		"--tag", k.Remote.Tag, "--life", k.Remote.Life, "--allow", strings.Join(allow, ","))
	return err
}

func (k *Keeper) send(c charge) error {
	line, err := json.Marshal(c.in())
	if err != nil {
		return err
	}
	_, err = k.process.Stdin.Write(append(line, '\n'))
	return err
}

// end lets the keeper go, with what it still has in charge.
func (k *Keeper) end() {
	if k.process == nil {
		return
	}
	_ = k.process.Stdin.Close()
	done := make(chan struct{})
	go func() {
		_ = k.process.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(4 * DefaultLimit): // as long as it may need for what is left
		_ = k.process.Kill()
		<-done
	}
	k.process = nil
}

// Close ends the keeper, which takes away what is still in its charge.
func (k *Keeper) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end()
	return nil
}

func keeperMain(args []string) int {
	flags := flag.NewFlagSet(KeeperName, flag.ContinueOnError)
	tag := flags.String("tag", "", "mark of what the agent made")
	life := flags.String("life", "", "of the agent")
	allow := flags.String("allow", "", "prefixes that may be called beside loopback")
	if err := flags.Parse(args); err != nil || *tag == "" {
		return 2
	}
	r := &Remote{Tag: *tag, Life: *life, Reach: reachOf(*allow)}
	if err := keep(r, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "toxic keeper:", err)
		return 1
	}
	return 0
}

// reachOf allows the prefixes of a list, and loopback where that was written or where who
// asked may reach it himself: a name that was allowed for another address may turn to it later.
func reachOf(list string) func(target.Toxiproxy, netip.AddrPort) error {
	var allow []netip.Prefix
	for s := range strings.SplitSeq(list, ",") {
		if p, err := netip.ParsePrefix(s); err == nil {
			allow = append(allow, p)
		}
	}
	return func(of target.Toxiproxy, at netip.AddrPort) error {
		addr := at.Addr().Unmap()
		for _, p := range allow {
			if p.Contains(addr) {
				return nil
			}
		}
		if addr.IsLoopback() && (of.Loopback || of.Literal()) {
			return nil
		}
		if addr.IsLoopback() {
			return fmt.Errorf("%s: %s is a loopback address by now, which is not allowed by the configuration (toxiproxy: allow)", of.API, at)
		}
		return fmt.Errorf("%s is neither a loopback address nor allowed by the configuration (toxiproxy: allow)", at)
	}
}

// keep reads charges until their end, and then takes away what is left of them.
func keep(r *Remote, from io.Reader) error {
	lines := make(chan charge)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(from); s.Scan(); {
			var c charge
			if json.Unmarshal(s.Bytes(), &c) == nil {
				c.deadline = time.Now().Add(time.Duration(c.LeftNS))
				lines <- c
			}
		}
	}()
	charges := map[string]charge{}
	var wait sync.WaitGroup // for those that are being taken away: one that hangs holds up no other
	defer wait.Wait()
	for {
		next := time.Hour
		for _, c := range charges {
			next = min(next, max(0, time.Until(c.deadline.Add(lateness))))
		}
		wake := time.NewTimer(next)
		select {
		case c, ok := <-lines:
			wake.Stop()
			if !ok {
				return r.discharge(charges)
			}
			if charges[c.Proxy.String()] = c; c.LeftNS == 0 {
				delete(charges, c.Proxy.String())
			}
		case <-wake.C:
			for text, c := range charges {
				if time.Until(c.deadline.Add(lateness)) > 0 {
					continue
				}
				delete(charges, text)
				wait.Go(func() {
					if err := r.discharge(map[string]charge{text: c}); err != nil {
						fmt.Fprintln(os.Stderr, "toxic keeper:", err)
					}
				})
			}
		}
	}
}

// discharge takes away what charges say, all at the same time.
func (r *Remote) discharge(charges map[string]charge) error {
	var wait sync.WaitGroup
	errs := make(chan error, len(charges))
	for _, c := range charges {
		wait.Go(func() {
			err := r.clear(context.Background(), c.Proxy, r.Mark(c.Proxy), c.Disabled)
			if stuck, ok := errors.AsType[*StuckError](err); err != nil && (!ok || !stuck.Recovered) {
				errs <- fmt.Errorf("%s: %w", c.Proxy.Words(), err)
			}
		})
	}
	wait.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// newLife tells one life of an agent from the next, so that the keeper of one takes nothing of
// the other's.
func newLife() string { return short(fmt.Sprint(os.Getpid(), time.Now().UnixNano())) }

// NewRemote makes what an agent with that state folder uses, with its Keeper. Prefixes in
// allow may be called beside loopback.
func NewRemote(stateDir string, allow []netip.Prefix) (*Remote, *Keeper) {
	texts := make([]string, len(allow))
	for i, p := range allow {
		texts[i] = p.String()
	}
	r := &Remote{Tag: Tag(stateDir), Life: newLife(), Reach: reachOf(strings.Join(texts, ","))}
	k := &Keeper{Remote: r, Allow: allow}
	r.Watch = k.Watch
	return r, k
}
