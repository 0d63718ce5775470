package prober

import (
	"netemd/probe"
	"netemd/probe/postgres"
)

func init() {
	kinds[probe.KindPostgres] = func(o Order) (probe.Caller, error) {
		p := o.Request.WithDefaults().Postgres
		return &postgres.Probe{
			Address: o.Address, User: o.User, Password: o.Password, Database: o.Database,
			Mode: p.Mode, Pool: p.Pool, Query: p.Query, Write: p.Write,
		}, nil
	}
}
