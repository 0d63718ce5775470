package testbed

import (
	"encoding/json"
	"net/http"
	"strconv"

	"netemd/probe/policy"
)

// Receipt is the answer to a payment.
type Receipt struct {
	Payment int64  `json:"payment"`
	Account string `json:"account"`
	Key     string `json:"key,omitempty"`
}

// Audit is what the ledger says of an account. It is right when Doubled and Unanswered are 0.
type Audit struct {
	Account string `json:"account"`
	Rows    int    `json:"rows"`
	// Doubled are the rows beyond the first one of their key.
	Doubled int `json:"doubled"`
	// Unanswered are the rows for which no client ever got a receipt: who asked for one of
	// them either gave up, or paid by another row.
	Unanswered int `json:"unanswered"`
}

func (a Audit) status() int {
	switch {
	case a.Rows == 0:
		return http.StatusNotFound
	case a.Doubled+a.Unanswered > 0:
		return http.StatusConflict
	}
	return http.StatusOK
}

// made is a payment that stands in the ledger, and the answer to it.
type made struct {
	payment int64
	answer  []byte
	// replay says that an earlier request made it.
	replay bool
}

func (m made) head(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(m.answer)))
	if m.replay {
		w.Header().Set(policy.HeaderIdempotencyReplay, "true")
	}
	w.WriteHeader(http.StatusCreated)
}

func (m made) write(w http.ResponseWriter) {
	m.head(w)
	_, _ = w.Write(m.answer) // a client that has gone is nobody to tell
}

// lose gives no good answer, in one of the ways of fail.
func (m made) lose(w http.ResponseWriter, fail string) {
	switch fail {
	case FailStatus:
		http.Error(w, "as asked for, after the commit", http.StatusInternalServerError)
		return
	case FailTruncated:
		m.head(w)
		_, _ = w.Write(m.answer[:len(m.answer)/2])
		_ = http.NewResponseController(w).Flush()
	}
	panic(http.ErrAbortHandler) // the server's own way to close a connection
}

func asJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values of ours
	}
	return append(text, '\n')
}
