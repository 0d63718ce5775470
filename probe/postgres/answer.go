package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"netemd/probe"
)

// MaxAnswer is the most that a query may answer, in bytes of its values. The probe holds one
// row at a time; what is longer ends the call with an error of the class protocol, and its
// connection.
const MaxAnswer = 16 << 20

var (
	errAnswer = errors.New("postgres: the query's answer is not one row with one value")
	errLong   = fmt.Errorf("postgres: the query's answer is longer than %d MiB", MaxAnswer>>20)
)

// answer looks at what comes row by row, and keeps none of it.
type answer struct {
	bytes int
	// rows and columns are of the last statement of several.
	rows, columns int
}

// read goes through the rows of one statement.
func (a *answer) read(r *pgconn.ResultReader) error {
	a.rows, a.columns = 0, 0
	for r.NextRow() {
		a.rows++
		values := r.Values()
		a.columns = len(values)
		for _, v := range values {
			a.bytes += len(v)
		}
		if a.bytes > MaxAnswer {
			return &probe.ProtocolError{Err: errLong} // the connection is not kept, so the rest may stay unread
		}
	}
	_, err := r.Close()
	return err
}

// judge says whether it was the answer that is asked for.
func (a *answer) judge() error {
	if a.rows != 1 || a.columns != 1 {
		return errAnswer
	}
	return nil
}

func prepared(r *pgconn.ResultReader) error {
	var a answer
	if err := a.read(r); err != nil {
		return err
	}
	return a.judge()
}

func simple(ctx context.Context, pg *pgconn.PgConn, query string) error {
	all := pg.Exec(ctx, query)
	var a answer
	for all.NextResult() {
		if err := a.read(all.ResultReader()); err != nil {
			return err
		}
	}
	if err := all.Close(); err != nil {
		return err
	}
	return a.judge()
}
