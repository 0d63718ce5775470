package application

import (
	"net/http"
	"reflect"
	"strings"

	"netemd/internal/fault"
)

// equal is of requests without headers.
func equal(a, b fault.Request) bool { return reflect.DeepEqual(a, b) }

// valuesOf are the values of a header field; the host is no field to Go.
func valuesOf(r *http.Request, name string) []string {
	if strings.EqualFold(name, "host") {
		return []string{r.Host}
	}
	return r.Header.Values(name)
}

// isCall reports whether r is a call of gRPC, by its content type (gRPC's PROTOCOL-HTTP2.md).
func isCall(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	rest, ok := strings.CutPrefix(kind, "application/grpc")
	return ok && r.ProtoMajor == 2 && (rest == "" || rest[0] == '+' || rest[0] == ';')
}
