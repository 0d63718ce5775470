package testbed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ledgerConnections is how many payments can be under way at a time; others wait.
const ledgerConnections = 40

// tables are made once. The ledger's keys are not unique: what must hold of them is what an
// audit looks for, and that a table's constraint repairs it would hide a mistake.
const tables = `
create table if not exists ledger (
	payment  bigint generated always as identity primary key,
	account  text not null,
	key      text,
	made     timestamptz not null default now(),
	answered bigint not null default 0
);
create table if not exists idempotency_keys (
	account text not null,
	key     text not null,
	sum     bytea not null,
	payment bigint not null,
	answer  bytea not null,
	primary key (account, key)
);`

var (
	errUnderWay  = errors.New("a request with this idempotency key is under way")
	errOtherBody = errors.New("this idempotency key was used with another body")
)

// ledger is the book of all payments, in a PostgreSQL. Several servers may share one.
type ledger struct{ pool *pgxpool.Pool }

// entry is a payment that is asked for.
type entry struct {
	Account string
	// Key is the idempotency key; empty for none.
	Key string
	// Sum is of the request's body.
	Sum [sha256.Size]byte
}

func openLedger(ctx context.Context, database string) (*ledger, error) {
	c, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, err
	}
	c.MaxConns = ledgerConnections
	// A lab's server writes no commit to its disk before it answers; a payment shall outlive
	// the server's being killed.
	c.ConnConfig.RuntimeParams["synchronous_commit"] = "on"
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	l := &ledger{pool}
	err = l.in(ctx, func(tx pgx.Tx) error {
		// two servers that make them at once would disturb each other
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtextextended('netemd ledger', 0))"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, tables)
		return err
	})
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return l, nil
}

func (l *ledger) close() { l.pool.Close() }

// in runs f in a transaction, which is rolled back where f fails.
func (l *ledger) in(ctx context.Context, f func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, l.pool, f)
}

// pay makes a payment, delay before its commit, or finds the one that the same key made. The
// key and the entry are one transaction. The error is errUnderWay or errOtherBody, or the
// database's.
func (l *ledger) pay(ctx context.Context, e entry, delay time.Duration) (m made, err error) {
	err = l.in(ctx, func(tx pgx.Tx) error {
		if e.Key != "" {
			done, err := l.known(ctx, tx, e, &m)
			if done || err != nil {
				return err
			}
		}
		if err := pause(ctx, delay); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, "insert into ledger (account, key) values ($1, nullif($2, '')) returning payment", e.Account, e.Key).Scan(&m.payment)
		if err != nil {
			return err
		}
		m.answer = asJSON(Receipt{Payment: m.payment, Account: e.Account, Key: e.Key})
		if e.Key == "" {
			return nil
		}
		_, err = tx.Exec(ctx, "insert into idempotency_keys (account, key, sum, payment, answer) values ($1, $2, $3, $4, $5)", e.Account, e.Key, e.Sum[:], m.payment, m.answer)
		return err
	})
	if err != nil && !errors.Is(err, errUnderWay) && !errors.Is(err, errOtherBody) {
		err = fmt.Errorf("ledger: %w", err)
	}
	return m, err
}

// known takes the key for this transaction, and finds the payment that it made before.
func (l *ledger) known(ctx context.Context, tx pgx.Tx, e entry, m *made) (done bool, err error) {
	mine := false
	// A length stands before the account, so that no two pairs are one text.
	err = tx.QueryRow(ctx, "select pg_try_advisory_xact_lock(hashtextextended(length($1::text) || ':' || $1::text || $2::text, 1))", e.Account, e.Key).Scan(&mine)
	if err != nil {
		return false, err
	}
	if !mine {
		return false, errUnderWay
	}
	var sum []byte
	err = tx.QueryRow(ctx, "select sum, payment, answer from idempotency_keys where account = $1 and key = $2", e.Account, e.Key).Scan(&sum, &m.payment, &m.answer)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	case !bytes.Equal(sum, e.Sum[:]):
		return false, errOtherBody
	}
	m.replay = true
	return true, nil
}

// answered notes that a client gets a receipt.
func (l *ledger) answered(ctx context.Context, payment int64) error {
	_, err := l.pool.Exec(ctx, "update ledger set answered = answered + 1 where payment = $1", payment)
	return err
}

// audit reads the account's rows.
func (l *ledger) audit(ctx context.Context, account string) (Audit, error) {
	a := Audit{Account: account}
	err := l.pool.QueryRow(ctx, audited+" where account = $1", account).Scan(&a.Rows, &a.Doubled, &a.Unanswered)
	return a, err
}

// auditAll reads the rows of all accounts; a key is one of its account.
func (l *ledger) auditAll(ctx context.Context) (a Audit, err error) {
	err = l.pool.QueryRow(ctx, audited).Scan(&a.Rows, &a.Doubled, &a.Unanswered)
	return a, err
}

const audited = `select count(*), count(key) - count(distinct (account, key)) filter (where key is not null), count(*) filter (where answered = 0) from ledger`
