package probe

// WithDefaults returns the request with every zero field but Target and Seed set to
// its default, where it has one.
func (r Request) WithDefaults() Request {
	def(&r.Kind, KindPostgres)
	def(&r.Layer, LayerDirect)
	if r.Duration == 0 && r.Open == nil {
		def(&r.Count, DefaultCount)
	}
	if r.Open != nil {
		open := *r.Open // the caller's own stays as it is
		def(&open.MaxInFlight, DefaultMaxInFlight)
		r.Open = &open
	} else {
		def(&r.Concurrency, DefaultConcurrency)
		def(&r.Pace, DefaultPace)
	}
	def(&r.Timeout, DefaultTimeout)
	def(&r.Threshold, SlowThreshold)
	switch r.Kind {
	case KindPostgres:
		def(&r.Postgres.Mode, "call")
		def(&r.Postgres.Query, defaultQuery)
	case KindTCP:
		def(&r.TCP.Mode, "connect")
		switch r.TCP.Mode {
		case "echo":
			def(&r.TCP.Bytes, 64)
		case "bulk", "download":
			def(&r.TCP.Bytes, 1<<20)
		}
	case KindUDP:
		def(&r.UDP.Bytes, 64)
	case KindHTTP:
		def(&r.HTTP.Version, "1.1")
		def(&r.HTTP.Method, "GET")
		def(&r.HTTP.Path, "/")
	case KindGRPC:
		def(&r.GRPC.Mode, "unary")
		def(&r.GRPC.Bytes, 64)
		if r.GRPC.Mode != "unary" {
			def(&r.GRPC.Messages, 10)
		}
	}
	return r
}

// def sets a zero field.
func def[T comparable](field *T, to T) {
	var zero T
	if *field == zero {
		*field = to
	}
}

const defaultQuery = "select 1"
