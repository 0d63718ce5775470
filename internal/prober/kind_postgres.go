package prober

import (
	"errors"
	"fmt"

	"netemd/probe"
	"netemd/probe/postgres"
)

func init() {
	kinds[probe.KindPostgres] = func(o Order) (probe.Caller, error) {
		p := o.Request.WithDefaults().Postgres
		if p.Mode != "call" {
			return nil, fmt.Errorf("probe: pg: mode %s: %w", p.Mode, errors.ErrUnsupported)
		}
		return &postgres.Probe{Address: o.Address, User: o.User, Password: o.Password, Database: o.Database, Query: p.Query}, nil
	}
}
