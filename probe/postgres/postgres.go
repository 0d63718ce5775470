// Package postgres is the probe of PostgreSQL servers.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"netemd/probe"
)

// closeLimit bounds what a call may take beyond its budget to part from the
// server. On a healthy path parting is one small write.
const closeLimit = 100 * time.Millisecond

// The modes of a Probe, with the turns that each takes after the TCP handshake. Login is 3
// turns with SCRAM, 1 where the server asks for nothing.
const (
	// Call connects, and prepares and executes a query: login + 2.
	Call = "call"
	// Connect connects and logs in: login.
	Connect = "connect"
	// Query is one simple query: 1, and login on a new connection.
	Query = "query"
	// Prepared executes a statement that is prepared once on each connection: 1, and login
	// + 1 on a new one.
	Prepared = "prepared"
	// Transaction is begin, the query, commit: 3, and login on a new connection.
	Transaction = "transaction"
)

// DefaultQuery is the default of Probe.Query.
const DefaultQuery = "select 1"

// Probe calls a PostgreSQL server, without TLS. Fields are set before the first call and
// not changed; Call is safe for concurrent use.
//
// A call makes one connection and no more: no second host, no cancel request, and nothing
// is tried again. TCP keep-alive is off and TCP_USER_TIMEOUT unset, so that nothing but the
// call's budget ends it.
type Probe struct {
	// Address of the server, an IP address and a port.
	Address netip.AddrPort
	// User, Password and Database log in.
	User, Password, Database string
	// Mode is Call (default), Connect, Query, Prepared or Transaction.
	Mode string
	// Pool is how many connections calls share, 0..1000; 0: each call has a new one. Not
	// for Call and Connect. A connection is made when a call finds none free, used again
	// by the call that comes next, the last used first, and not checked before: the one
	// call that finds it broken fails, and its place is free at once. Calls beyond Pool wait
	// within their budget.
	Pool int
	// Query returns one row with one value; default "select 1". One of one's own runs with
	// default_transaction_read_only on, which the connection's first message asks for: the
	// server refuses it if it would change something, unless Write is set.
	Query string
	// Write says that Query may change something.
	Write bool

	once   sync.Once
	config *pgconn.Config
	err    error
	pool   pool
}

// session is a connection that is logged in, or on its way there.
type session struct {
	socket *probe.Socket
	pg     *pgconn.PgConn
	// prepared says that it has the statement of the mode Prepared.
	prepared bool
}

// Call makes one call. It returns at most 200 ms after ctx ends.
func (p *Probe) Call(ctx context.Context, seq int) probe.Sample {
	p.once.Do(p.configure)
	s := probe.Sample{Seq: seq, Remote: p.Address, StartNS: probe.Now()}
	var phases probe.Phases
	c, err := p.take(ctx, &phases)
	if err == nil {
		if err = p.connect(ctx, c, &phases); err == nil {
			err = p.ask(ctx, c, &phases)
		}
	}
	s.EndNS = probe.Now()
	s.Phases = phases.End(s.EndNS)
	if c != nil {
		c.socket.Record(&s)
		if c.socket.Conn() != nil && misunderstood(err) {
			err = &probe.ProtocolError{Err: err}
		}
		p.give(c, err)
	}
	if s.Class = probe.Classify(err); err != nil {
		s.Error = err.Error()
	}
	return s
}

// misunderstood reports that err came neither from the socket or the context, nor
// from the server's own words: the client did not understand what came.
func misunderstood(err error) bool {
	if probe.Classify(err) != probe.Other || errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed) || errors.Is(err, errAnswer) {
		return false
	}
	_, ok := errors.AsType[*net.OpError](err)
	return !ok
}

// connect logs in, where that is not done yet.
func (p *Probe) connect(ctx context.Context, c *session, phases *probe.Phases) error {
	if phases.Socket = c.socket; c.pg != nil {
		c.socket.Begin()
		return nil
	}
	cfg := p.config.Copy()
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.socket.Dial(ctx, network, address)
		if err == nil {
			phases.Begin(probe.PhaseAuth)
		}
		return conn, err
	}
	phases.Begin(probe.PhaseConnect)
	var err error
	c.pg, err = pgconn.ConnectConfig(ctx, cfg)
	return err
}

// statement is the name of the mode Prepared's.
const statement = "netem_probe"

func (p *Probe) ask(ctx context.Context, c *session, phases *probe.Phases) error {
	switch p.mode() {
	case Connect:
		return nil
	case Call:
		phases.Begin(probe.PhasePrepare)
		if _, err := c.pg.Prepare(ctx, "", p.query(), nil); err != nil {
			return err
		}
		phases.Begin(probe.PhaseQuery)
		return prepared(c.pg.ExecPrepared(ctx, "", nil, nil, nil))
	case Prepared:
		if !c.prepared {
			phases.Begin(probe.PhasePrepare)
			if _, err := c.pg.Prepare(ctx, statement, p.query(), nil); err != nil {
				return err
			}
			c.prepared = true
		}
		phases.Begin(probe.PhaseQuery)
		return prepared(c.pg.ExecPrepared(ctx, statement, nil, nil, nil))
	case Query:
		phases.Begin(probe.PhaseQuery)
		return simple(ctx, c.pg, p.query())
	}
	phases.Begin(probe.PhaseBegin)
	if err := c.pg.Exec(ctx, "begin").Close(); err != nil {
		return err
	}
	phases.Begin(probe.PhaseQuery)
	if err := simple(ctx, c.pg, p.query()); err != nil {
		return err // the connection is not kept within a transaction
	}
	phases.Begin(probe.PhaseCommit)
	return c.pg.Exec(ctx, "commit").Close()
}

func (p *Probe) mode() string {
	if p.Mode == "" {
		return Call
	}
	return p.Mode
}

func (p *Probe) query() string {
	if p.Query == "" {
		return DefaultQuery
	}
	return p.Query
}

// readOnly reports whether the server is told to refuse what changes something.
func (p *Probe) readOnly() bool { return !p.Write && p.query() != DefaultQuery }

// part says goodbye and closes. pgconn has a clean-up of its own after an interrupted
// query, which waits up to 15 s for the server; closing the connection under it
// ends that.
func (c *session) part() {
	raw := c.socket.Conn()
	if raw == nil {
		return
	}
	_ = raw.SetDeadline(time.Now().Add(closeLimit)) // a closed connection refuses it, and needs it no more
	if c.pg == nil {
		_ = raw.Close()
		return
	}
	if !c.pg.IsClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		_ = c.pg.Close(ctx) // the sample is taken: how the goodbye went changes nothing
	}
	_ = raw.Close()
	select {
	case <-c.pg.CleanupDone():
	case <-time.After(closeLimit):
	}
}

// configure prepares what all calls share. pgconn wants a configuration that its
// parser made; the parser reads PG* variables of the environment, so what would
// change the calls is set here.
func (p *Probe) configure() {
	p.pool.open(p.Pool)
	switch p.mode() {
	case Call, Connect:
		if p.Pool > 0 {
			p.err = fmt.Errorf("postgres: pool %d: want none in mode %s", p.Pool, p.mode())
			return
		}
	case Query, Prepared, Transaction:
	default:
		p.err = fmt.Errorf("postgres: mode %q: want call, connect, query, prepared or transaction", p.Mode)
		return
	}
	if !p.Address.IsValid() {
		p.err = fmt.Errorf("postgres: address %v: want an IP address and a port", p.Address)
		return
	}
	cfg, err := pgconn.ParseConfig("host=127.0.0.1 port=1 user=x password=x dbname=x sslmode=disable target_session_attrs=any connect_timeout=0")
	if err != nil {
		p.err = fmt.Errorf("postgres: %w", err)
		return
	}
	cfg.Host, cfg.Port = p.Address.Addr().String(), p.Address.Port()
	cfg.User, cfg.Password, cfg.Database = p.User, p.Password, p.Database
	cfg.RuntimeParams = map[string]string{"application_name": "netem-probe"}
	cfg.Fallbacks, cfg.ValidateConnect, cfg.AfterConnect = nil, nil, nil
	cfg.ConnectTimeout = 0
	cfg.MaxProtocolMessageBodyLen = MaxAnswer
	if p.readOnly() {
		cfg.RuntimeParams["default_transaction_read_only"] = "on"
	}
	p.config = cfg
}

// Describe says how connections are used.
func (p *Probe) Describe() map[string]string {
	d := map[string]string{
		"mode": p.mode(), "query": p.query(), "tcp_keepalive": "off", "tcp_user_timeout": "off", "tls": "off", "connections": "one for each call",
	}
	if p.readOnly() {
		d["transactions"] = "read-only"
	}
	if p.Pool > 0 {
		d["connections"] = "a pool of " + strconv.Itoa(p.Pool) + ": made when needed, last used first, not checked before use; a broken one leaves its place at once"
	}
	return d
}
