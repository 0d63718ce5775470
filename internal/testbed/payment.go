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
	"sync/atomic"
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
	// countLimit is how long its account of the ledger may take: less than the control's limit.
	countLimit = 3 * time.Second
)

// Payments is a server of payments over HTTP/1.1 and HTTP/2 without TLS, with its ledger in a
// PostgreSQL, where it makes its tables. It is safe for concurrent use.
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
//
// It counts requests for a payment (hits), those with a good answer (ok), of them those that an
// earlier request had made (replays), those that met their key under way (conflicts), those whose
// answer was lost as they asked for (lost), the others (errors), and those under way (in_flight).
// Of the ledger it tells what an Audit of all accounts says: rows, doubled, unanswered. They
// outlive the server, no reset changes them, and they are not there while the database is not.
type Payments struct {
	counters
	book atomic.Pointer[ledger]

	mu    sync.Mutex
	tries map[string]int
}

// NewPayments returns one without a ledger.
func NewPayments() *Payments {
	p := &Payments{tries: map[string]int{}}
	for _, name := range []string{"hits", "ok", "replays", "conflicts", "lost", "errors"} {
		p.add(name, 0)
	}
	p.level("in_flight", 0)
	return p
}

// Serve serves at l until ctx ends; it closes l. The database is the URL of a PostgreSQL.
func (p *Payments) Serve(ctx context.Context, l net.Listener, database string) error {
	book, err := openLedger(ctx, database)
	if err != nil {
		return errors.Join(fmt.Errorf("payment: %w", err), l.Close())
	}
	defer book.close()
	p.book.Store(book)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments/{account}", p.pay)
	mux.HandleFunc("GET /audit/{account}", p.audit)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	return serveHTTP(ctx, l, PaymentChild, mux)
}

// Counters implements control.Controlled.
func (p *Payments) Counters() map[string]int64 {
	all := p.counters.Counters()
	book := p.book.Load()
	if book == nil {
		return all
	}
	ctx, cancel := context.WithTimeout(context.Background(), countLimit)
	defer cancel()
	if a, err := book.auditAll(ctx); err == nil {
		all["rows"], all["doubled"], all["unanswered"] = int64(a.Rows), int64(a.Doubled), int64(a.Unanswered)
	}
	return all
}

// Settings implements control.Controlled; there are none.
func (p *Payments) Settings() []byte { return nil }

// Set implements control.Controlled.
func (p *Payments) Set(text []byte) error { return noSettings(PaymentChild, text) }

func paymentChild(args []string) int {
	database := ""
	more := func(f *flag.FlagSet) {
		f.StringVar(&database, "database", "", "URL of the PostgreSQL with the ledger; the password is in PGPASSWORD")
	}
	p := NewPayments()
	return serveChildWith(PaymentChild, args, more, p, func(ctx context.Context, l net.Listener) error { return p.Serve(ctx, l, database) })
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

func (p *Payments) pay(w http.ResponseWriter, r *http.Request) {
	p.add("hits", 1)
	p.level("in_flight", 1)
	defer p.level("in_flight", -1)
	// What is counted is counted before the client can know it.
	refuse := func(count string, err error, status int) {
		p.add(count, 1)
		http.Error(w, err.Error(), status)
	}
	ask, err := parseWrong(r.URL.Query())
	if err != nil {
		refuse("errors", err, http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPayment))
	if err != nil {
		refuse("errors", err, http.StatusBadRequest)
		return
	}
	// A payment that was begun is made, whether or not its client waits for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), ask.delay+ledgerLimit)
	defer cancel()
	order := entry{Account: r.PathValue("account"), Key: r.Header.Get(policy.HeaderIdempotencyKey), Sum: sha256.Sum256(body)}
	made, err := p.book.Load().pay(ctx, order, ask.delay)
	switch {
	case errors.Is(err, errUnderWay):
		refuse("conflicts", err, http.StatusConflict)
	case errors.Is(err, errOtherBody):
		refuse("errors", err, http.StatusUnprocessableEntity)
	case err != nil:
		refuse("errors", err, http.StatusServiceUnavailable)
	case p.again(order) <= ask.first:
		p.add("lost", 1)
		made.lose(w, ask.fail)
	default:
		if err := p.book.Load().answered(ctx, made.payment); err != nil {
			refuse("errors", err, http.StatusServiceUnavailable)
			return
		}
		p.add("ok", 1)
		if made.replay {
			p.add("replays", 1)
		}
		made.write(w)
	}
}

// again is how many requests with the order's key have come to their answer, this one too.
func (p *Payments) again(o entry) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := o.Account + "\x00" + o.Key
	if p.tries[of] == 0 && len(p.tries) >= maxTries {
		return maxTries
	}
	p.tries[of]++
	return p.tries[of]
}

func (p *Payments) audit(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), ledgerLimit)
	defer cancel()
	found, err := p.book.Load().audit(ctx, r.PathValue("account"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(found.status())
	_, _ = w.Write(asJSON(found))
}
