// Package postgres is the probe of PostgreSQL servers.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"netemd/probe"
)

// closeLimit bounds what a call may take beyond its budget to part from the
// server. On a healthy path parting is one small write.
const closeLimit = 100 * time.Millisecond

// Probe calls a PostgreSQL server: every call is a new connection without TLS,
// an authentication (SCRAM when the server asks for it), and one query that is
// prepared and executed. That makes five answers of the server after the TCP
// handshake. Fields are set before the first call and not changed; Call is safe
// for concurrent use.
//
// A call makes one connection and no more: no second host, no cancel request. TCP
// keep-alive is off and TCP_USER_TIMEOUT unset, so that nothing but the call's
// budget ends it.
type Probe struct {
	// Address of the server, an IP address and a port.
	Address netip.AddrPort
	// User, Password and Database log in.
	User, Password, Database string
	// Query returns one row with one value; default "select 1".
	Query string

	once   sync.Once
	config *pgx.ConnConfig
	err    error
}

// Call makes one call. It returns at most 200 ms after ctx ends.
func (p *Probe) Call(ctx context.Context, seq int) probe.Sample {
	p.once.Do(p.configure)
	socket := probe.NewSocket()
	s := probe.Sample{Seq: seq, Remote: p.Address, StartNS: probe.Now()}
	conn, err := p.query(ctx, socket.Dial)
	s.EndNS = probe.Now()
	socket.Record(&s)
	part(conn, socket.Conn())
	if socket.Conn() != nil && misunderstood(err) {
		err = &probe.ProtocolError{Err: err}
	}
	if s.Class = probe.Classify(err); err != nil {
		s.Error = err.Error()
	}
	return s
}

// misunderstood reports that err came neither from the socket or the context, nor
// from the server's own words: the client did not understand what came.
func misunderstood(err error) bool {
	if probe.Classify(err) != probe.Other || errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed) {
		return false
	}
	_, ok := errors.AsType[*net.OpError](err)
	return !ok
}

// query connects, asks and leaves the connection, if there is one, to the caller.
func (p *Probe) query(ctx context.Context, dial pgconn.DialFunc) (*pgx.Conn, error) {
	if p.err != nil {
		return nil, p.err
	}
	cfg := p.config.Copy()
	cfg.DialFunc = dial
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	q := p.Query
	if q == "" {
		q = "select 1"
	}
	var answer any
	return conn, conn.QueryRow(ctx, q).Scan(&answer)
}

// part says goodbye and closes. pgx has a clean-up of its own after an interrupted
// query, which waits up to 15 s for the server; closing the connection under it
// ends that.
func part(conn *pgx.Conn, raw net.Conn) {
	if raw == nil {
		return
	}
	_ = raw.SetDeadline(time.Now().Add(closeLimit)) // a closed connection refuses it, and needs it no more
	if conn == nil {
		_ = raw.Close()
		return
	}
	if !conn.IsClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		_ = conn.Close(ctx) // the sample is taken: how the goodbye went changes nothing
	}
	_ = raw.Close()
	select {
	case <-conn.PgConn().CleanupDone():
	case <-time.After(closeLimit):
	}
}

// configure prepares what all calls share. pgx wants a configuration that its
// parser made; the parser reads PG* variables of the environment, so what would
// change the calls is set here.
func (p *Probe) configure() {
	if !p.Address.IsValid() {
		p.err = fmt.Errorf("postgres: address %v: want an IP address and a port", p.Address)
		return
	}
	cfg, err := pgx.ParseConfig("host=127.0.0.1 port=1 user=x password=x dbname=x sslmode=disable target_session_attrs=any connect_timeout=0")
	if err != nil {
		p.err = fmt.Errorf("postgres: %w", err)
		return
	}
	cfg.Host, cfg.Port = p.Address.Addr().String(), p.Address.Port()
	cfg.User, cfg.Password, cfg.Database = p.User, p.Password, p.Database
	cfg.RuntimeParams = map[string]string{"application_name": "netem-probe"}
	cfg.Fallbacks, cfg.ValidateConnect, cfg.AfterConnect = nil, nil, nil
	cfg.ConnectTimeout = 0
	// prepare, then execute: two answers, and no cache that a later call could find
	cfg.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	cfg.StatementCacheCapacity, cfg.DescriptionCacheCapacity = 0, 0
	p.config = cfg
}
