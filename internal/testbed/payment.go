package testbed

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"netemd/probe/policy"
)

// The ways in which an answer can be lost after its payment was made (fail=).
const (
	// FailClosed closes the connection without an answer; a stream of HTTP/2 is reset.
	FailClosed = "closed"
	// FailStatus answers with status 500.
	FailStatus = "status"
	// FailTruncated closes the connection after half of the answer.
	FailTruncated = "truncated"
)

const (
	// maxPayment is how long a request's body may be.
	maxPayment = 1 << 20
	// maxTries is for how many keys is remembered how often they came; further ones do not fail.
	maxTries = 100_000
	// ledgerLimit is how long the database may take, beside the delay that is asked for.
	ledgerLimit = 10 * time.Second
)

// Payment serves payments at l over HTTP/1.1 and HTTP/2 without TLS until ctx ends; it closes
// l, and keeps its ledger in the PostgreSQL of that URL, where it makes its tables.
//
//	POST /payments/ACCOUNT   makes a payment: 201 and a Receipt as JSON
//	GET /audit/ACCOUNT       looks whether the ledger is right: an Audit as JSON, 200 or 409,
//	                         404 where no payment was made
//	GET /health              answers "ok"
//
// A payment with a header Idempotency-Key is made once: a later request with it gets the same
// answer with X-Idempotency-Replay: true, one that comes while the first is under way 409, and
// one with another body 422. Without a key each request is a payment. The client's going ends
// none that was begun.
//
// What shall go wrong is in the query of a payment:
//
//	fail_after_commit=N      the first N requests with each key (all of an account without one
//	                         are taken together) get no good answer, after what they asked for
//	                         was done
//	fail=closed              how: closed, status or truncated
//	delay=DURATION           between the beginning of the payment and its commit, at most 1 m
func Payment(ctx context.Context, l net.Listener, database string) error {
	book, err := openLedger(ctx, database)
	if err != nil {
		return errors.Join(fmt.Errorf("payment: %w", err), l.Close())
	}
	defer book.close()
	p := &payments{book: book, tries: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments/{account}", p.pay)
	mux.HandleFunc("GET /audit/{account}", p.audit)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	return serveHTTP(ctx, l, PaymentChild, mux)
}

func paymentChild(args []string) int {
	database := ""
	more := func(f *flag.FlagSet) {
		f.StringVar(&database, "database", "", "URL of the PostgreSQL with the ledger; the password is in PGPASSWORD")
	}
	return serveChildWith(PaymentChild, args, more, nil, func(ctx context.Context, l net.Listener) error { return Payment(ctx, l, database) })
}

// payments answers requests.
type payments struct {
	book *ledger

	mu    sync.Mutex
	tries map[string]int
}

// wrong is what a request asks to go wrong.
type wrong struct {
	first int
	fail  string
	delay time.Duration
}

func parseWrong(q url.Values) (w wrong, err error) {
	for name := range q {
		v := q.Get(name)
		var bad error
		switch name {
		case "fail_after_commit":
			if w.first, bad = strconv.Atoi(v); bad != nil || w.first < 0 {
				return w, fmt.Errorf("fail_after_commit: %q is not valid, want a number from 0", v)
			}
		case "fail":
			if w.fail = v; v != FailClosed && v != FailStatus && v != FailTruncated {
				return w, fmt.Errorf("fail: %q is not valid, want closed, status or truncated", v)
			}
		case "delay":
			if w.delay, bad = time.ParseDuration(v); bad != nil || w.delay < 0 || w.delay > maxDelay {
				return w, fmt.Errorf("delay: %q is not valid, want a duration up to 1m, such as 250ms", v)
			}
		default:
			return w, fmt.Errorf("%s: is not known, want fail_after_commit, fail or delay", name)
		}
	}
	return w, nil
}

func (p *payments) pay(w http.ResponseWriter, r *http.Request) {
	ask, err := parseWrong(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPayment))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// A payment that was begun is made, whether or not its client waits for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), ask.delay+ledgerLimit)
	defer cancel()
	order := entry{Account: r.PathValue("account"), Key: r.Header.Get(policy.HeaderIdempotencyKey), Sum: sha256.Sum256(body)}
	made, err := p.book.pay(ctx, order, ask.delay)
	switch {
	case errors.Is(err, errUnderWay):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, errOtherBody):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case p.again(order) <= ask.first:
		made.lose(w, ask.fail)
	default:
		if err := p.book.answered(ctx, made.payment); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		made.write(w)
	}
}

// again is how many requests with the order's key have come to their answer, this one too.
func (p *payments) again(o entry) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := o.Account + "\x00" + o.Key
	if p.tries[of] == 0 && len(p.tries) >= maxTries {
		return maxTries
	}
	p.tries[of]++
	return p.tries[of]
}

func (p *payments) audit(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), ledgerLimit)
	defer cancel()
	found, err := p.book.audit(ctx, r.PathValue("account"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(found.status())
	_, _ = w.Write(asJSON(found))
}
