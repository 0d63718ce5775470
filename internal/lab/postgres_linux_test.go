package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"netemd/internal/lab/service"
)

// connect opens a session as a client in the namespace would.
func connect(ctx context.Context, ns string, c Credentials) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%d user=%s password=%s dbname=%s sslmode=disable connect_timeout=5",
		c.Address.Addr(), c.Address.Port(), c.User, c.Password, c.Database))
	if err != nil {
		return nil, err
	}
	cfg.DialFunc = func(ctx context.Context, _, address string) (net.Conn, error) {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, err
		}
		return dial(ctx, ns, to)
	}
	return pgx.ConnectConfig(ctx, cfg)
}

func TestPostgres(t *testing.T) {
	for name, dir := range map[string]string{"reachable state folder": openDir(t), "closed state folder": t.TempDir()} {
		t.Run(name, func(t *testing.T) { testPostgres(t, dir) })
	}
}

func testPostgres(t *testing.T, dir string) {
	d := testDefinition(t, postgresService, proxyService)
	m := newManager(t, dir)
	began := time.Now()
	info, err := m.Up(t.Context(), d, Identity{}, func(step string) { t.Logf("%8.3f s %s", time.Since(began).Seconds(), step) })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%8.3f s up", time.Since(began).Seconds())
	access, err := m.Postgres(d.Name, netip.AddrPortFrom(serverAddress, 5432))
	if err != nil {
		t.Fatal(err)
	}
	client := d.Namespace("client")
	c, err := connect(t.Context(), client, access)
	if err != nil {
		t.Fatal(err)
	}
	programs(t, c)
	_ = c.Close(t.Context())
	password, err := os.ReadFile(m.passwordPath(d.Name, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	superuser := access
	superuser.User, superuser.Password = postgresUser, strings.TrimSpace(string(password))
	if c, err = connect(t.Context(), client, superuser); err != nil {
		t.Fatal(err)
	}
	var from, secret, sockets string
	err = c.QueryRow(t.Context(), "select host(inet_client_addr()), left(rolpassword, 14), current_setting('unix_socket_directories') from pg_authid where rolname = current_user").Scan(&from, &secret, &sockets)
	if err != nil {
		t.Fatal(err)
	}
	if from != "10.78.0.1" || secret != "SCRAM-SHA-256$" || sockets != "" {
		t.Errorf("client %q, secret %q, sockets %q", from, secret, sockets)
	}
	rulesOfRoot(t, c)
	_ = c.Close(t.Context())

	wrong := access
	wrong.Password = "nope"
	_, err = connect(t.Context(), client, wrong)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "28P01" { // invalid_password
		t.Errorf("with a wrong password: %v", err)
	}
	proxied := access
	proxied.Address = netip.AddrPortFrom(serverAddress, 15432)
	if c, err = connect(t.Context(), client, proxied); err != nil {
		t.Errorf("through the proxy: %v", err)
	} else {
		_ = c.Close(t.Context())
	}
	if stat, err := os.Stat(m.passwordPath(d.Name, "postgres")); err != nil || stat.Mode().Perm() != 0o600 {
		t.Errorf("password file: %v, %v", stat, err)
	}
	r, err := m.get(d.Name)
	if err != nil {
		t.Fatal(err)
	}
	homes := []string{r.record.Services[0].Home, r.record.Services[1].Home}

	// The next process adopts it all: the same PostgreSQL, another proxy.
	next := newManager(t, dir)
	if err := next.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	adopted, err := next.Get(t.Context(), d.Name)
	if err != nil {
		t.Fatal(err)
	}
	before, after := info.Nodes[1].Services, adopted.Nodes[1].Services
	if before[0].PID != after[0].PID || before[1].PID == after[1].PID {
		t.Errorf("services before %+v, after %+v", before, after)
	}
	if again, err := next.Postgres(d.Name, access.Address); err != nil || again != access {
		t.Errorf("credentials %+v, %v", again, err)
	}
	if _, err := next.ProxySocket(d.Name, proxied.Address); err != nil {
		t.Error(err)
	}

	if again, err := next.Up(t.Context(), d, Identity{}, nil); err != nil || again.Nodes[1].Services[0].PID != after[0].PID {
		t.Errorf("up after adopting: %+v, %v", again, err)
	}

	began = time.Now()
	if existed, err := next.Down(t.Context(), d.Name); !existed || err != nil {
		t.Errorf("down: %v, %v", existed, err)
	}
	t.Logf("down: %v", time.Since(began))
	nothingLeft(t, dir, d)
	for _, h := range homes {
		if _, err := os.Stat(h); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", h, err)
		}
	}
}

// rulesOfRoot checks that only root can change who may log in, or put a link where root
// writes that.
func rulesOfRoot(t *testing.T, c *pgx.Conn) {
	t.Helper()
	var rules string
	if err := c.QueryRow(t.Context(), "select current_setting('hba_file')").Scan(&rules); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{rules, filepath.Dir(rules)} {
		stat, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if uid := stat.Sys().(*syscall.Stat_t).Uid; uid != 0 || stat.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s: uid %d, mode %v, want only root to write there", path, uid, stat.Mode())
		}
	}
}

// TestBrokenLab kills PostgreSQL: the next process takes the lab down.
func TestBrokenLab(t *testing.T) {
	d := testDefinition(t, postgresService)
	dir := openDir(t)
	m := newManager(t, dir)
	info, err := m.Up(t.Context(), d, Identity{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := service.Identify(info.Nodes[1].Services[0].PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(oldSteps(KindPostgres)[2]); err != nil {
		t.Fatal(err)
	}
	next := newManager(t, dir)
	if err := next.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if infos, err := next.List(t.Context()); err != nil || len(infos) != 0 {
		t.Errorf("adopted %+v, %v", infos, err)
	}
	nothingLeft(t, dir, d)
}

// TestFailedCopy has a copy of a primary that fails: the cause is in the error, and what the
// primary said about it, which both go with the lab.
func TestFailedCopy(t *testing.T) {
	d := testDefinition(t)
	dir := t.TempDir()
	m := newManager(t, dir)
	if _, err := m.Up(t.Context(), d, Identity{}, nil); err != nil {
		t.Fatal(err)
	}
	folder := m.serviceDir(d.Name, "primary")
	script := "#!/bin/sh\nprintf 'pg_basebackup: error: could not receive data\\npg_basebackup: removing data directory\\n' >&2\nexit 1\n"
	err := errors.Join(
		os.MkdirAll(folder, 0o755), os.MkdirAll(m.serviceDir(d.Name, "standby"), 0o755),
		os.WriteFile(m.passwordPath(d.Name, "primary"), []byte("x\n"), 0o600),
		os.WriteFile(m.probePasswordPath(d.Name, "primary"), []byte("y\n"), 0o600),
		os.WriteFile(service.LogPath(folder, "primary"), []byte("ERROR: requested WAL segment has been removed\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "pg_basebackup"), []byte(script), 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{record: &record{Definition: d, Services: []serviceRecord{{Node: "server", Name: "primary", Folder: folder, Log: service.LogPath(folder, "primary")}}}}
	c := &cluster{m: m, r: r, rec: &serviceRecord{Node: "client", Name: "standby"}, bin: dir, data: filepath.Join(dir, "data")}
	if c.log, err = openLog(os.DevNull); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.log.Close() }()
	if err = c.copy(t.Context(), "primary"); err == nil {
		t.Fatal("no error")
	}
	contains(t, err.Error(), "copy of primary: pg_basebackup: exit status 1", "could not receive data | ", "; its log: ERROR: requested WAL segment")
}

// programs: who probes runs no program and reads no file as the server's user.
func programs(t *testing.T, c *pgx.Conn) {
	t.Helper()
	for _, sql := range []string{
		"copy (select 1) to program 'true'", "copy (select 1) to '/tmp/x'", "select pg_read_file('/etc/passwd')", "select lo_export(1, '/tmp/x')", "create role x superuser",
	} {
		_, err := c.Exec(t.Context(), sql)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "42501" { // insufficient_privilege
			t.Errorf("%s: %v", sql, err)
		}
	}
	if _, err := c.Exec(t.Context(), "create table ledger(id int); drop table ledger"); err != nil {
		t.Errorf("in a schema of its own: %v", err)
	}
}
