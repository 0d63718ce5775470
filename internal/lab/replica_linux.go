package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// copy makes the data folder of a streaming standby from the running server that it
// follows, with a replication slot there (pg_basebackup(1)).
func (c *cluster) copy(ctx context.Context, primary string) error {
	of := c.r.record.service(primary)
	password, err := os.ReadFile(c.passwordPath(primary))
	if err != nil {
		return fmt.Errorf("password of %s: %w", primary, err)
	}
	// The roles come with the data.
	if err := writeFile(c.passwordPath(c.rec.Name), password, 0o600); err != nil {
		return err
	}
	lab := c.r.record.Definition.Name
	probes, err := os.ReadFile(c.m.probePasswordPath(lab, primary))
	if err != nil {
		return fmt.Errorf("password of %s: %w", primary, err)
	}
	if err := writeFile(c.m.probePasswordPath(lab, c.rec.Name), probes, 0o600); err != nil {
		return err
	}
	// --write-recovery-conf puts the connection, with the password of the environment, and
	// the slot into the data folder, which only PostgreSQL's user reads.
	_, err = c.command(ctx, "pg_basebackup", c.login(password),
		"--pgdata="+c.data, "--dbname=application_name="+c.rec.Name, "--host="+of.Address.Addr().String(), "--port="+strconv.Itoa(int(of.Address.Port())),
		"--username="+postgresUser, "--create-slot", "--slot="+slot(c.rec.Name), "--write-recovery-conf",
		"--checkpoint=fast", "--wal-method=stream", "--no-sync", "--no-password")
	if err != nil {
		// The standby was never started; why it was refused is in the other one's log.
		return fmt.Errorf("copy of %s: %w%s", primary, err, of.logTail())
	}
	return nil
}

// slot is the name of a standby's replication slot, of a-z, 0-9 and '_'.
func slot(service string) string { return strings.ReplaceAll(service, "-", "_") }

func (c *cluster) login(password []byte) []string {
	return []string{"PGPASSWORD=" + strings.TrimSpace(string(password)), "PGCONNECT_TIMEOUT=5", "HOME=" + filepath.Dir(c.data)}
}

// catchUp waits until the standby has replayed what its primary had written when the
// standby began to answer, and goes on to receive.
func (c *cluster) catchUp(ctx context.Context, primary string) error {
	const pause = 100 * time.Millisecond
	position, err := c.query(ctx, c.r.record.service(primary),
		"select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end")
	if err != nil {
		return fmt.Errorf("position of %s: %w", primary, err)
	}
	for {
		said, err := c.query(ctx, c.rec, fmt.Sprintf(
			"select pg_is_in_recovery() and pg_last_wal_replay_lsn() >= '%s'::pg_lsn and exists (select from pg_stat_wal_receiver where status = 'streaming')", position))
		switch {
		case err == nil && said == "t":
			return nil
		case err == nil:
			err = fmt.Errorf("it is not streaming, or behind %s", position)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)%s", context.Cause(ctx), err, c.rec.logTail())
		case <-time.After(pause):
			if !c.rec.Process.Alive() {
				return fmt.Errorf("ended before it had caught up (last: %w)%s", err, c.rec.logTail())
			}
		}
	}
}

// query asks a server of the lab for one value, from the node of this one.
func (c *cluster) query(ctx context.Context, of *serviceRecord, sql string) (string, error) {
	password, err := os.ReadFile(c.passwordPath(of.Name))
	if err != nil {
		return "", err
	}
	return c.command(ctx, "psql", c.login(password), "--no-psqlrc", "--no-password", "--tuples-only", "--no-align",
		"--host="+of.Address.Addr().String(), "--port="+strconv.Itoa(int(of.Address.Port())), "--username="+postgresUser, "--dbname="+postgresDatabase, "--command="+sql)
}
