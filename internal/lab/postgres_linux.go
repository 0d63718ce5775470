package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/failpoint"
	"netemd/namespaces"
)

// Credentials are how a lab's PostgreSQL is reached.
type Credentials struct {
	Address netip.AddrPort
	// User is a superuser; its password is random, and new with each lab.
	User, Password, Database string
}

const (
	postgresUser     = "netem"
	postgresDatabase = "postgres"
)

// Postgres returns the credentials of the lab's PostgreSQL that listens at that
// address.
func (m *Manager) Postgres(lab string, at netip.AddrPort) (Credentials, error) {
	s, err := m.service(lab, KindPostgres, at)
	if err != nil {
		return Credentials{}, err
	}
	password, err := os.ReadFile(m.passwordPath(lab, s.Name))
	if err != nil {
		return Credentials{}, fmt.Errorf("lab %s: password: %w", lab, err)
	}
	return Credentials{Address: s.Address, User: postgresUser, Password: strings.TrimSpace(string(password)), Database: postgresDatabase}, nil
}

func (m *Manager) passwordPath(lab, service string) string {
	return filepath.Join(m.serviceDir(lab, service), "password")
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

// credential is the user that PostgreSQL runs as, since it refuses root.
func credential() (*syscall.Credential, error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
}

func (m *Manager) startPostgres(ctx context.Context, r *running, rec *serviceRecord, progress func(string)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, postgresLimit, fmt.Errorf("not ready after %v", postgresLimit))
	defer cancel()
	bin, err := binaries()
	if err != nil {
		return err
	}
	cred, err := credential()
	if err != nil {
		return err
	}
	if err := m.chooseHome(ctx, r.record, rec, bin, cred); err != nil {
		return err
	}
	log, err := openLog(rec.Log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	ns := r.record.Definition.Namespace(rec.Node)
	data := filepath.Join(rec.Home, "data")

	progress(rec.Name + ": making a cluster")
	if err := m.initdb(ctx, r.record.Definition.Name, ns, rec, bin, cred, log); err != nil {
		return err
	}
	failpoint.At("lab.service.cluster")
	progress(fmt.Sprintf("%s: starting on %s", rec.Name, rec.Address))
	rules, err := writeRules(rec.Home)
	if err != nil {
		return err
	}
	args := []string{"-D", data, "-c", "hba_file=" + rules}
	for _, s := range postgresSettings(rec.Address) {
		args = append(args, "-c", s)
	}
	server := postgresCommand(filepath.Join(bin, "postgres"), args, cred, log)
	if err := namespaces.Start(ns, server); err != nil {
		return err
	}
	gone := make(chan error, 1)
	go func() { gone <- server.Wait() }()
	if err := m.started(r.record, rec, server.Process.Pid); err != nil {
		return err
	}
	return m.wait(ctx, rec, gone, func() error { return askPostgres(ctx, ns, rec.Address) })
}

// postgresSettings are those of a server that lives minutes and whose data nobody
// wants back.
func postgresSettings(at netip.AddrPort) []string {
	return []string{
		"listen_addresses=" + at.Addr().String(), "port=" + strconv.Itoa(int(at.Port())), "unix_socket_directories=",
		"fsync=off", "full_page_writes=off", "synchronous_commit=off",
		"wal_level=minimal", "max_wal_senders=0", "min_wal_size=2MB", "max_wal_size=32MB",
		"shared_buffers=16MB", "max_connections=100", "autovacuum=off", "jit=off", "huge_pages=off",
		// In the data folder, so that nothing is left in /dev/shm when it is killed.
		"dynamic_shared_memory_type=mmap",
		"ssl=off", "log_timezone=UTC", "timezone=UTC", "logging_collector=off",
	}
}

// postgresCommand runs one of PostgreSQL's programs, as its user, in a session of its
// own, and in an IPC namespace of its own: its System V segment goes with it, however
// it ends.
func postgresCommand(path string, args []string, cred *syscall.Credential, out io.Writer) *exec.Cmd {
	return &exec.Cmd{
		Path: path, Args: append([]string{path}, args...), Dir: "/",
		Env:    []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"},
		Stdout: out, Stderr: out,
		SysProcAttr: &syscall.SysProcAttr{Credential: cred, Setsid: true, Cloneflags: unix.CLONE_NEWIPC},
	}
}

// chooseHome picks where the cluster's data is: in the state folder if PostgreSQL's
// user may go there, else in a temporary folder.
func (m *Manager) chooseHome(ctx context.Context, r *record, rec *serviceRecord, bin string, cred *syscall.Credential) error {
	// Only a try tells: modes, access lists and security modules all have a say.
	reach := func(dir string) error {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version")
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: cred}
		return cmd.Run()
	}
	var errs []error
	err := reach(rec.Home)
	if err != nil {
		errs = append(errs, err)
		name := make([]byte, 8)
		_, _ = rand.Read(name)
		rec.Home = filepath.Join(os.TempDir(), homePrefix+hex.EncodeToString(name))
		if err := m.save(r); err != nil {
			return err
		}
		if err := os.Mkdir(rec.Home, 0o711); err != nil {
			return err
		}
		if err = reach(rec.Home); err != nil {
			return fmt.Errorf("its user reaches no folder for its data: %w", errors.Join(append(errs, err)...))
		}
	}
	data := filepath.Join(rec.Home, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	return os.Chown(data, int(cred.Uid), int(cred.Gid))
}

// initdb makes the cluster, inside the namespace so that it is found and ended with
// it after a crash.
func (m *Manager) initdb(ctx context.Context, lab, ns string, rec *serviceRecord, bin string, cred *syscall.Credential, log io.Writer) error {
	secret := make([]byte, 16)
	_, _ = rand.Read(secret)
	password := hex.EncodeToString(secret) + "\n"
	if err := writeFile(m.passwordPath(lab, rec.Name), []byte(password), 0o600); err != nil {
		return err
	}
	// A copy that its user may read, while it is needed.
	once := filepath.Join(rec.Home, "initdb-password")
	if err := os.WriteFile(once, []byte(password), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(once) }()
	if err := os.Chown(once, int(cred.Uid), int(cred.Gid)); err != nil {
		return err
	}
	data := filepath.Join(rec.Home, "data")
	var out bytes.Buffer
	cmd := postgresCommand(filepath.Join(bin, "initdb"), []string{
		"-D", data, "-U", postgresUser, "--pwfile=" + once, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions", "--wal-segsize=1",
	}, cred, io.MultiWriter(log, &out))
	if err := namespaces.Start(ns, cmd); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err := cmd.Wait()
	stop()
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("initdb: %w", cause)
	}
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLine(out.Bytes()))
	}
	return nil
}

// writeRules writes who may log in, and returns the file's path. It is not in the data
// folder: whoever runs as PostgreSQL's user could put a link there, and root would
// write where it leads.
func writeRules(home string) (string, error) {
	const rules = "host all all 0.0.0.0/0 scram-sha-256\nhost all all ::/0 scram-sha-256\n"
	path := filepath.Join(home, "pg_hba.conf")
	return path, writeFile(path, []byte(rules), 0o644)
}

func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}

// askPostgres returns nil when the server asks for a password, which it does when it
// is ready: before, it refuses with "the database system is starting up". (Messages:
// "Frontend/Backend Protocol", version 3.0, of PostgreSQL's manual.)
func askPostgres(ctx context.Context, ns string, at netip.AddrPort) error {
	c, err := dial(ctx, ns, at)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	const protocol3 = 3 << 16
	body := binary.BigEndian.AppendUint32(nil, protocol3)
	body = append(body, "user\x00"+postgresUser+"\x00database\x00"+postgresDatabase+"\x00\x00"...)
	message := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	if _, err := c.Write(append(message, body...)); err != nil {
		return err
	}
	answer := make([]byte, 512)
	n, err := c.Read(answer)
	if err != nil {
		return err
	}
	if answer[0] != 'R' { // an authentication request
		return fmt.Errorf("answer %q", answer[:n])
	}
	return nil
}
