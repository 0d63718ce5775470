// Package settings is what an http-tier does, as YAML: in a lab's file, in a plan and while it
// serves. It is read strictly, and starts nothing.
package settings

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"netemd/internal/policyfile"
	"netemd/internal/strictyaml"
	"netemd/probe/policy"
	"netemd/qdisc"
)

// Limits of settings.
const (
	MaxUpstreams = 20
	MaxReplicas  = 20
	MaxPlaces    = 10000
	MaxWork      = time.Minute
)

// The ways in which an upstream's replicas are chosen.
const (
	// Pinned: each connection of callers has one, in turn, and all calls for it go there; while
	// that one is ejected, to the next one that is not.
	Pinned = "pinned"
	// RoundRobin: each call begins at the next one, and each further attempt of it goes on.
	RoundRobin = "round_robin"
)

// Keys are the settings. All are replaced at once; what is not said has its default.
type Keys struct {
	// Work is how long each request is worked at before the upstreams are called; default 0s.
	Work time.Duration `yaml:"work,omitempty" want:"a time up to 1m, such as 500ms"`
	// ObeyDeadline ends all that is done for a request with the caller's deadline (Grpc-Timeout)
	// and with the caller, also while it waits for a worker.
	ObeyDeadline bool `yaml:"obey_deadline,omitempty" want:"true or false"`
	// IgnoreLeaving lets the caller's going end nothing, as of a server that is too busy to see
	// it: with ObeyDeadline only the deadline that was told counts.
	IgnoreLeaving bool `yaml:"ignore_leaving,omitempty" want:"true or false"`
	// Status is answered where all else is well; default 200.
	Status int `yaml:"status,omitempty" want:"a status from 200 to 599, such as 503"`
	// Workers are how many requests are worked at at a time; the others wait in the order in
	// which they came. Default 0: any number.
	Workers int `yaml:"workers,omitempty" want:"a number from 1 to 10000"`
	// Queue is how many requests may wait for one of the Workers; one more is answered 503 at
	// once. Default 0: any number.
	Queue int `yaml:"queue,omitempty" want:"a number from 1 to 10000"`
	// Pool is how many calls of all upstreams without a pool of their own may be under way at a
	// time; the others wait. Default 0: any number.
	Pool int `yaml:"pool,omitempty" want:"a number from 1 to 10000"`
	// PoolWait is how long a call waits for a place in its pool before it is given up; default
	// 0s: as long as what is done for the request lasts.
	PoolWait time.Duration `yaml:"pool_wait,omitempty" want:"a time up to 1m, such as 200ms"`
	// Upstreams are all called for each request, at the same time.
	Upstreams strictyaml.Named[Upstream] `yaml:"upstreams,omitempty" want:"NAME: {keys of an upstream}, such as stock: {at: [stock:80], policy: retry}"`
	// Policies are those that the upstreams name.
	Policies strictyaml.Named[policyfile.Keys] `yaml:"policies,omitempty" want:"NAME: {keys of a client policy}, such as retry: {retry: {max_attempts: 3}}"`
}

// WantYAML is the form, after "want".
func (Keys) WantYAML() string {
	return "settings of an http-tier, such as {work: 20ms, upstreams: {stock: {at: stock:80}}}"
}

// Upstream is what a tier calls.
type Upstream struct {
	// At are its replicas, NODE:PORT or ADDRESS:PORT.
	At strictyaml.Several[string] `yaml:"at" strict:"required" want:"NODE:PORT or ADDRESS:PORT, such as stock:80, or a list of such"`
	// Route calls it only for requests whose path begins so; default: for all.
	Route string `yaml:"route,omitempty" want:"the beginning of a path, such as /stock"`
	// Method and Path of the calls; default those of the request. A policy with a hedge wants a
	// Method of GET, HEAD or OPTIONS, or idempotency keys.
	Method string `yaml:"method,omitempty" want:"a method, such as GET or POST"`
	Path   string `yaml:"path,omitempty" want:"a path, such as /delay/300ms"`
	// Balance is pinned (default) or round_robin.
	Balance string `yaml:"balance,omitempty" want:"pinned or round_robin"`
	// Eject leaves a replica out for so long after a failure, as long as there is another;
	// default 0s: never.
	Eject time.Duration `yaml:"eject,omitempty" want:"a time up to 1m, such as 1s"`
	// Pool is how many of its calls may be under way at a time; default: the tier's Pool.
	Pool int `yaml:"pool,omitempty" want:"a number from 1 to 10000"`
	// Policy is the name of one of the policies, of a plan's or a built-in one; default: one
	// attempt without a timeout of its own.
	Policy string `yaml:"policy,omitempty" want:"the name of a client policy"`
}

// WantYAML is the form, after "want".
func (Upstream) WantYAML() string { return "an upstream, such as {at: stock:80, policy: retry}" }

// Tier is what Keys mean: the policies by the names of the upstreams.
type Tier struct {
	Keys
	Uses map[string]policy.Policy
}

var format = strictyaml.Format{}

// Parse reads settings; an empty text is settings without any. The error has a
// *strictyaml.Mistake for each thing that is wrong.
func Parse(text []byte) (Tier, error) {
	t := Tier{Uses: map[string]policy.Policy{}}
	if len(strings.TrimSpace(string(text))) == 0 {
		return t, nil
	}
	doc := format.Read("settings", text, &t.Keys)
	if !doc.Readable() {
		return Tier{}, doc.Err()
	}
	rest := doc.Check(t.Check())
	own := map[string]policy.Policy{}
	for _, e := range t.Policies {
		p, err := e.Value.Policy(doc, strictyaml.Key("policies", e.Name), e.Name)
		own[e.Name], rest = p, errors.Join(rest, err)
	}
	for _, e := range t.Upstreams {
		if e.Value.Policy == "" {
			continue
		}
		p, ok := own[e.Value.Policy]
		if !ok {
			var err error
			if p, err = builtin(e.Value.Policy); err != nil {
				rest = errors.Join(rest, doc.Check(&qdisc.FieldError{
					Field: strictyaml.Key("upstreams", e.Name, "policy"), Value: e.Value.Policy, Want: "the name of one of the policies, or of a built-in one",
				}))
			}
		}
		if p.Hedge != nil && !e.Value.twice() && (p.Idempotency == nil || p.Idempotency.Key == policy.PerAttempt) {
			rest = errors.Join(rest, doc.Check(&qdisc.FieldError{
				Field: strictyaml.Key("upstreams", e.Name, "policy"), Value: e.Value.Policy,
				Why:  "it hedges calls that may change something",
				Want: "method: GET beside it, idempotency: {key: per_call} in the policy, or no hedge",
			}))
		}
		t.Uses[e.Name] = p
	}
	if err := errors.Join(rest, doc.Err()); err != nil {
		return Tier{}, err
	}
	return t, nil
}

// twice reports that its calls may be made twice: their method is known, and safe (RFC 9110,
// 9.2.1).
func (u Upstream) twice() bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, u.Method)
}

func builtin(name string) (policy.Policy, error) {
	text, ok := policyfile.Text(name)
	if !ok {
		return policy.Policy{}, fmt.Errorf("no policy %q", name)
	}
	return policyfile.Parse(name, text)
}

// Check returns all that is wrong with the keys but for the policies, as *qdisc.FieldErrors.
func (k Keys) Check() error {
	var errs []error
	refuse := func(field, value, want string) {
		errs = append(errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
	}
	places := func(field string, n int) {
		if n < 0 || n > MaxPlaces {
			refuse(field, strconv.Itoa(n), "a number from 1 to 10000, or the key left out")
		}
	}
	if k.Work < 0 || k.Work > MaxWork {
		refuse("work", k.Work.String(), "a time up to 1m, such as 500ms")
	}
	if k.Status != 0 && (k.Status < 200 || k.Status > 599) {
		refuse("status", strconv.Itoa(k.Status), "a status from 200 to 599, such as 503")
	}
	places("workers", k.Workers)
	places("queue", k.Queue)
	places("pool", k.Pool)
	if k.Queue > 0 && k.Workers == 0 {
		refuse("queue", strconv.Itoa(k.Queue), "workers beside it, for which requests wait")
	}
	if k.PoolWait < 0 || k.PoolWait > MaxWork {
		refuse("pool_wait", k.PoolWait.String(), "a time up to 1m, such as 200ms")
	}
	if len(k.Upstreams) > MaxUpstreams {
		refuse("upstreams", "", fmt.Sprintf("at most %d, not %d", MaxUpstreams, len(k.Upstreams)))
	}
	for _, e := range k.Upstreams {
		key, u := strictyaml.Key("upstreams", e.Name), e.Value
		if len(u.At) == 0 || len(u.At) > MaxReplicas {
			refuse(key+".at", "", fmt.Sprintf("1 to %d replicas, not %d", MaxReplicas, len(u.At)))
		}
		for i, at := range u.At {
			if _, port, ok := strings.Cut(at, ":"); !ok || port == "" {
				refuse(fmt.Sprintf("%s.at[%d]", key, i), at, "NODE:PORT or ADDRESS:PORT, such as stock:80")
			}
		}
		if u.Balance != "" && u.Balance != Pinned && u.Balance != RoundRobin {
			refuse(key+".balance", u.Balance, "pinned or round_robin")
		}
		if u.Eject < 0 || u.Eject > MaxWork {
			refuse(key+".eject", u.Eject.String(), "a time up to 1m, such as 1s")
		}
		places(key+".pool", u.Pool)
		for _, p := range []struct{ field, path string }{{"route", u.Route}, {"path", u.Path}} {
			if p.path != "" && !strings.HasPrefix(p.path, "/") {
				refuse(key+"."+p.field, p.path, "a path, which begins with /")
			}
		}
	}
	return errors.Join(errs...)
}

// YAML is the settings as a text that Parse reads.
func (k Keys) YAML() ([]byte, error) {
	if k.empty() {
		return nil, nil
	}
	return strictyaml.Write(k)
}

func (k Keys) empty() bool {
	return k.Work == 0 && !k.ObeyDeadline && !k.IgnoreLeaving && k.Status == 0 && k.Workers == 0 && k.Queue == 0 && k.Pool == 0 && k.PoolWait == 0 && len(k.Upstreams) == 0 && len(k.Policies) == 0
}

// Resolve is a text of settings with each NODE:PORT of the upstreams as an address.
func Resolve(text []byte, address func(at string) (netip.AddrPort, error)) ([]byte, error) {
	t, err := Parse(text)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i := range t.Upstreams {
		u := &t.Upstreams[i]
		for k, at := range u.Value.At {
			a, err := address(at)
			if bad, ok := errors.AsType[*qdisc.FieldError](err); ok {
				named := *bad
				named.Field = fmt.Sprintf("%s.at[%d]", strictyaml.Key("upstreams", u.Name), k)
				err = &named
			}
			u.Value.At[k] = a.String()
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t.YAML()
}
