package lab

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/failpoint"
	"netemd/internal/lab/service"
	"netemd/namespaces"
)

// Credentials are how a probe reaches a lab's PostgreSQL.
type Credentials struct {
	Address netip.AddrPort
	// User may log in and own what is in a schema of that name, and no more; the password
	// is random, and new with each lab.
	User, Password, Database string
}

const (
	postgresUser     = "netem" // the superuser
	postgresDatabase = "postgres"
	// probeUser is who probes log in as. A superuser runs programs and reads files as the
	// host's user that the server runs as, and queries come from whoever may probe.
	probeUser = "netem_probe"
)

// Postgres returns a probe's credentials at the lab's PostgreSQL that listens at that
// address.
func (m *Manager) Postgres(lab string, at netip.AddrPort) (Credentials, error) {
	s, err := m.service(lab, KindPostgres, at)
	if err != nil {
		return Credentials{}, err
	}
	password, err := os.ReadFile(m.probePasswordPath(lab, s.Name))
	if err != nil {
		return Credentials{}, fmt.Errorf("lab %s: password: %w", lab, err)
	}
	return Credentials{Address: s.Address, User: probeUser, Password: strings.TrimSpace(string(password)), Database: postgresDatabase}, nil
}

// passwordPath is the superuser's, which only root and the agent know.
func (m *Manager) passwordPath(lab, service string) string {
	return filepath.Join(m.serviceDir(lab, service), "password")
}

func (m *Manager) probePasswordPath(lab, service string) string {
	return filepath.Join(m.serviceDir(lab, service), "probe-password")
}

// binaries returns the folder of the newest PostgreSQL of the distribution's.
func binaries() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	if len(found) == 0 {
		return "", fmt.Errorf("no PostgreSQL in /usr/lib/postgresql: %w; install it with: apt-get install postgresql", os.ErrNotExist)
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

// postgresStop is its fast shutdown, then its immediate one (pg_ctl(1)).
var postgresStop = []service.Step{{Signal: unix.SIGINT, Wait: 10 * time.Second}, {Signal: unix.SIGQUIT, Wait: time.Second}}

// credential is the user that PostgreSQL runs as, since it refuses root.
func credential() (service.Identity, error) {
	id, err := service.LookUp("postgres")
	if err != nil {
		return unprivileged()
	}
	return id, nil
}

// cluster is a PostgreSQL that is being made.
type cluster struct {
	m    *Manager
	r    *running
	rec  *serviceRecord
	bin  string
	id   service.Identity
	log  *os.File
	data string
}

func (m *Manager) startPostgres(ctx context.Context, r *running, rec *serviceRecord, s ServiceDefinition, progress func(string)) error {
	limit := cmp.Or(s.ReadyTimeout, postgresLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not ready after %v", limit))
	defer cancel()
	bin, err := binaries()
	if err != nil {
		return err
	}
	id, err := credential()
	if err != nil {
		return err
	}
	c := &cluster{m: m, r: r, rec: rec, bin: bin, id: id}
	if err := c.chooseHome(ctx); err != nil {
		return err
	}
	c.data = filepath.Join(rec.Home, "data")
	if c.log, err = openLog(service.LogPath(rec.Folder, rec.Name)); err != nil {
		return err
	}
	defer func() { _ = c.log.Close() }()
	if s.ReplicaOf == "" {
		progress(rec.Name + ": making a cluster")
		err = c.initdb(ctx)
	} else {
		progress(fmt.Sprintf("%s: copying %s", rec.Name, s.ReplicaOf))
		err = c.copy(ctx, s.ReplicaOf)
	}
	if err != nil {
		return err
	}
	failpoint.At("lab.service.cluster")
	progress(fmt.Sprintf("%s: starting on %s", rec.Name, rec.Address))
	if err := c.start(ctx, s, limit); err != nil {
		return err
	}
	ns := r.record.Definition.Namespace(rec.Node)
	if err := waitFor(ctx, rec, func() error { return askPostgres(ctx, ns, rec.Address) }); err != nil {
		return err
	}
	if s.ReplicaOf == "" {
		return c.admitProbes(ctx)
	}
	progress(fmt.Sprintf("%s: catching up with %s", rec.Name, s.ReplicaOf))
	return c.catchUp(ctx, s.ReplicaOf)
}

// start starts the server.
func (c *cluster) start(ctx context.Context, s ServiceDefinition, limit time.Duration) error {
	rules, err := writeRules(c.rec.Home)
	if err != nil {
		return err
	}
	args := []string{filepath.Join(c.bin, "postgres"), "-D", c.data, "-c", "hba_file=" + rules}
	for _, set := range postgresSettings(c.rec.Address, c.r.record.Definition.replicated(s)) {
		args = append(args, "-c", set)
	}
	return c.m.run(ctx, c.r, c.rec, service.Order{
		Name: c.rec.Name, Folder: c.rec.Folder, Command: args, Environment: postgresEnvironment, Identity: c.id, OwnIPC: true,
		Log: s.Log, Writer: writer(c.r.record.By), Stop: postgresStop, StopMain: true,
		Ready: service.Readiness{TCP: []netip.AddrPort{c.rec.Address}, Postgres: postgresUser, Within: limit},
	})
}

var postgresEnvironment = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}

// replicated reports whether the service is an end of a replication.
func (d Definition) replicated(s ServiceDefinition) bool {
	if s.ReplicaOf != "" {
		return true
	}
	for _, n := range d.Nodes {
		if slices.ContainsFunc(n.Services, func(o ServiceDefinition) bool { return o.ReplicaOf == s.Name }) {
			return true
		}
	}
	return false
}

// postgresSettings are those of a server that lives minutes and whose data nobody
// wants back.
func postgresSettings(at netip.AddrPort, replicated bool) []string {
	all := []string{
		"listen_addresses=*", "port=" + strconv.Itoa(int(at.Port())), "unix_socket_directories=",
		"fsync=off", "full_page_writes=off", "synchronous_commit=off",
		"min_wal_size=2MB", "max_wal_size=32MB",
		"shared_buffers=16MB", "max_connections=100", "autovacuum=off", "jit=off", "huge_pages=off",
		// In the data folder, so that nothing is left in /dev/shm when it is killed.
		"dynamic_shared_memory_type=mmap",
		"ssl=off", "log_timezone=UTC", "timezone=UTC", "logging_collector=off",
	}
	if !replicated {
		return append(all, "wal_level=minimal", "max_wal_senders=0")
	}
	// A standby that is cut off may come back after so much has been written; what is kept
	// for it must not fill the state folder, which is memory.
	return append(all, "wal_level=replica", "max_wal_senders=32", "max_replication_slots=32", "max_slot_wal_keep_size=64MB", "wal_keep_size=64MB", "hot_standby=on")
}

// command runs one of PostgreSQL's programs, as its user, in a session of its own, and
// in an IPC namespace of its own: its System V segment goes with it, however it ends. It
// is inside the service's node, so that it is found and ended with it after a crash.
func (c *cluster) command(ctx context.Context, program string, env []string, args ...string) (out string, err error) {
	return c.feed(ctx, nil, program, env, args...)
}

// feed is command with something to read on standard input.
func (c *cluster) feed(ctx context.Context, input io.Reader, program string, env []string, args ...string) (out string, err error) {
	path := filepath.Join(c.bin, program)
	var said, errs bytes.Buffer
	cmd := &exec.Cmd{
		Path: path, Args: append([]string{path}, args...), Dir: "/", Env: append(slices.Clone(postgresEnvironment), env...),
		Stdin: input, Stdout: &said, Stderr: io.MultiWriter(c.log, &errs),
		SysProcAttr: &syscall.SysProcAttr{Credential: c.id.Credential(), Setsid: true, Cloneflags: unix.CLONE_NEWIPC},
	}
	if err := namespaces.Start(c.r.record.Definition.Namespace(c.rec.Node), cmd); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err = cmd.Wait()
	stop()
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return "", fmt.Errorf("%s: %w", program, cause)
	}
	if err != nil {
		// Not the last line alone: pg_basebackup's tells that it cleans up.
		return "", fmt.Errorf("%s: %w: %s", program, err, service.LastLines(append(said.Bytes(), errs.Bytes()...)))
	}
	return strings.TrimSpace(said.String()), nil
}

// chooseHome picks where the cluster's data is: in the state folder if PostgreSQL's
// user may go there, else in a temporary folder.
func (c *cluster) chooseHome(ctx context.Context) error {
	// Only a try tells: modes, access lists and security modules all have a say.
	reach := func(dir string) error {
		cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "postgres"), "--version")
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: c.id.Credential()}
		return cmd.Run()
	}
	if err := reach(c.rec.Home); err != nil {
		name := make([]byte, 8)
		_, _ = rand.Read(name)
		c.r.services.saving.Lock()
		c.rec.Home = filepath.Join(os.TempDir(), homePrefix+hex.EncodeToString(name))
		saved := c.m.save(c.r.record)
		c.r.services.saving.Unlock()
		if saved != nil {
			return saved
		}
		if err := os.Mkdir(c.rec.Home, 0o711); err != nil {
			return err
		}
		if other := reach(c.rec.Home); other != nil {
			return fmt.Errorf("its user reaches no folder for its data: %w", errors.Join(err, other))
		}
	}
	data := filepath.Join(c.rec.Home, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	return os.Chown(data, int(c.id.UID), int(c.id.GID))
}

// initdb makes the cluster.
func (c *cluster) initdb(ctx context.Context) error {
	password := newPassword() + "\n"
	if err := writeFile(c.passwordPath(c.rec.Name), []byte(password), 0o600); err != nil {
		return err
	}
	// A copy that its user may read, while it is needed.
	once := filepath.Join(c.rec.Home, "initdb-password")
	if err := os.WriteFile(once, []byte(password), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(once) }()
	if err := os.Chown(once, int(c.id.UID), int(c.id.GID)); err != nil {
		return err
	}
	_, err := c.command(ctx, "initdb", nil,
		"-D", c.data, "-U", postgresUser, "--pwfile="+once, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions", "--wal-segsize=1")
	return err
}

// newPassword needs no quotes in SQL.
func newPassword() string {
	secret := make([]byte, 16)
	_, _ = rand.Read(secret)
	return hex.EncodeToString(secret)
}

// admitProbes makes the role that probes log in as, which a standby gets with the data.
func (c *cluster) admitProbes(ctx context.Context) error {
	superuser, err := os.ReadFile(c.passwordPath(c.rec.Name))
	if err != nil {
		return err
	}
	password := newPassword()
	if err := writeFile(c.m.probePasswordPath(c.r.record.Definition.Name, c.rec.Name), []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	// On standard input, since arguments are there for everybody to read.
	sql := fmt.Sprintf("create role %[1]s login password '%[2]s';\ncreate schema %[1]s authorization %[1]s;\n", probeUser, password)
	_, err = c.feed(ctx, strings.NewReader(sql), "psql", c.login(superuser),
		"--no-psqlrc", "--no-password", "--quiet", "--set=ON_ERROR_STOP=1",
		"--host="+c.rec.Address.Addr().String(), "--port="+strconv.Itoa(int(c.rec.Address.Port())), "--username="+postgresUser, "--dbname="+postgresDatabase)
	if err != nil {
		return fmt.Errorf("role for probes: %w", err)
	}
	return nil
}

func (c *cluster) passwordPath(service string) string {
	return c.m.passwordPath(c.r.record.Definition.Name, service)
}

// writeRules writes who may log in, and returns the file's path. It is not in the data
// folder: whoever runs as PostgreSQL's user could put a link there, and root would
// write where it leads.
func writeRules(home string) (string, error) {
	const rules = "host all,replication all 0.0.0.0/0 scram-sha-256\nhost all,replication all ::/0 scram-sha-256\n"
	path := filepath.Join(home, "pg_hba.conf")
	return path, writeFile(path, []byte(rules), 0o644)
}

// dial opens a TCP connection from inside the namespace.
func dial(ctx context.Context, namespace string, to netip.AddrPort) (c net.Conn, err error) {
	err = namespaces.Do(ctx, namespace, func() error {
		c, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", to.String())
		return err
	})
	return c, err
}

// openLog opens a service's log for appending, for root alone.
func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// askPostgres returns nil when the server asks for a password, which it does when it
// is ready.
func askPostgres(ctx context.Context, ns string, at netip.AddrPort) error {
	c, err := dial(ctx, ns, at)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return service.AskPostgres(c, postgresUser, postgresDatabase)
}
