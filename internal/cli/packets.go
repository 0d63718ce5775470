package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/target"
)

// recordView is a chosen packet as JSON.
type recordView struct {
	Time        time.Time `json:"time"`
	MonotonicNS int64     `json:"monotonic_ns"`
	Source      string    `json:"source"`
	Destination string    `json:"destination"`
	Protocol    string    `json:"protocol"`
	// Flags and Sequence are null but for TCP; Segment unless the rule counts them.
	Flags       []string `json:"tcp_flags"`
	Sequence    *uint32  `json:"sequence"`
	Payload     uint32   `json:"payload_bytes"`
	Segment     *uint32  `json:"data_segment"`
	Length      uint32   `json:"length_bytes"`
	WirePackets uint32   `json:"wire_packets"`
}

func viewRecord(r content.Record) recordView {
	v := recordView{
		Time: r.Wall, MonotonicNS: r.Time, Source: r.Source, Destination: r.Destination, Protocol: target.ProtocolName(r.Protocol),
		Payload: r.Payload, Length: r.Length, WirePackets: r.Segments,
	}
	if r.Protocol == protoTCP {
		v.Flags, v.Sequence = list(target.FlagNames(r.Flags)), &r.Sequence
	}
	if r.Segment > 0 {
		v.Segment = &r.Segment
	}
	return v
}

// packetsData is what packets answers.
type packetsData struct {
	ID     string `json:"id"`
	Chosen uint64 `json:"chosen_packets"`
	// Missed could not be recorded, Skipped came before the packets here and are no longer kept.
	Missed  uint64 `json:"missed_packets"`
	Skipped uint64 `json:"skipped_packets"`
	// Forgotten connections count anew.
	Forgotten uint64       `json:"forgotten_connections"`
	Packets   []recordView `json:"packets"`
}

// gapView is a line of a stream of packets: so many are not in it, here.
type gapView struct {
	// Missed could not be recorded, Skipped were no longer kept.
	Missed  uint64 `json:"missed_packets"`
	Skipped uint64 `json:"skipped_packets"`
}

func (a *app) packets() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "packets ID [--follow]", Short: "Name each packet that a drop or hold chose", DisableFlagsInUseLine: true,
		Long: fmt.Sprintf(`Name each packet that a fault of drop or hold chose: when, of which connection, with
which sequence number. The last %d of each direction are kept, for a minute beyond
the fault's end, too. WIRE above 1 is a super-packet that segmentation offload was to
cut: it was acted on whole; '--offload off' with the fault avoids that. What a --follow
cannot tell, since it came too fast, is counted: as a warning, and in -o jsonl as a line
of missed_packets and skipped_packets. In -o json skipped_packets came before those that
are kept.`, content.MaxRecords),
		Args: arguments(1, "ID"), ValidArgsFunction: a.completeFaults,
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with those to come, until the fault ends")
	cmd.RunE = a.do(func(cmd *cobra.Command, args []string) error {
		if follow && a.output == outJSON {
			return fault.WithHint(usageError{errors.New("packets: a stream is no single document")}, "use -o jsonl")
		}
		agent, err := a.dial()
		if err != nil {
			return err
		}
		defer agent.Close()
		if follow {
			return a.followPackets(cmd.Context(), agent, args[0])
		}
		log, err := chosen(cmd.Context(), agent, args[0])
		if err != nil {
			return err
		}
		return a.emitPackets(args[0], log)
	})
	return cmd
}

// chosen reads all that is known now.
func chosen(ctx context.Context, agent Agent, id string) (content.Log, error) {
	var all content.Log
	err := agent.Packets(ctx, id, false, func(part content.Log) {
		all.Records = append(all.Records, part.Records...)
		all.Chosen, all.Missed, all.Forgotten = part.Chosen, part.Missed, part.Forgotten
	})
	return all, err
}

func (a *app) emitPackets(id string, log content.Log) error {
	data := packetsData{ID: id, Chosen: log.Chosen, Missed: log.Missed, Skipped: noLongerKept(log, uint64(len(log.Records))), Forgotten: log.Forgotten, Packets: []recordView{}}
	for _, r := range log.Records {
		data.Packets = append(data.Packets, viewRecord(r))
	}
	if a.output != outJSON { // which says it itself
		a.sayMissed(log, uint64(len(log.Records)))
	}
	return a.emit(answer{kind: "packets", data: data, lines: anys(data.Packets), table: func(w io.Writer, s style) {
		if len(log.Records) == 0 {
			a.say("no packet was chosen")
			return
		}
		t := table{
			head:  []string{"TIME", "FROM", "TO", "PACKET", "SEQ", "PAYLOAD", "SEGMENT", "LENGTH", "WIRE"},
			right: map[int]bool{4: true, 5: true, 6: true, 7: true, 8: true},
		}
		for _, r := range log.Records {
			v := viewRecord(r)
			t.add(a.clock(r), r.Source, r.Destination, packetKind(r), number32(v.Sequence), fmt.Sprintf("%d B", r.Payload), number32(v.Segment),
				fmt.Sprintf("%d B", r.Length), fmt.Sprint(r.Segments))
		}
		t.write(w, s)
	}})
}

// noLongerKept is how many packets came before those that are shown, as many as are kept.
func noLongerKept(log content.Log, shown uint64) uint64 {
	if shown < content.MaxRecords {
		return 0
	}
	return log.Chosen - min(log.Chosen, log.Missed+shown)
}

// sayMissed says what of a log cannot be shown.
func (a *app) sayMissed(log content.Log, shown uint64) {
	if log.Missed > 0 {
		a.warn([]string{fmt.Sprintf("%s came too fast to be recorded", packetsText(log.Missed))})
	}
	if older := noLongerKept(log, shown); older > 0 {
		a.warn([]string{fmt.Sprintf("%s before these are no longer kept", packetsText(older))})
	}
	if log.Forgotten > 0 {
		a.warn([]string{fmt.Sprintf("%d connections or more were forgotten, of more than %d: they count anew", log.Forgotten, content.MaxConnections)})
	}
}

// followPackets prints each packet as it comes.
func (a *app) followPackets(ctx context.Context, agent Agent, id string) error {
	e := json.NewEncoder(a.out)
	var before content.Log
	err := agent.Packets(ctx, id, true, func(part content.Log) {
		a.sayGap(e, gapView{Missed: part.Missed - min(part.Missed, before.Missed), Skipped: part.Skipped})
		for _, r := range part.Records {
			if a.output == outJSONL {
				_ = e.Encode(viewRecord(r)) // a reader that went away ends this by its signal
				continue
			}
			fmt.Fprintln(a.out, a.recordLine(r))
		}
		if part.Forgotten > 0 && before.Forgotten == 0 {
			a.sayMissed(content.Log{Forgotten: part.Forgotten}, 0)
		}
		before = content.Log{Missed: part.Missed, Forgotten: part.Forgotten}
	})
	if err == nil {
		a.say("%s has ended", id)
	}
	return err
}

// sayGap says what of a stream is missing here, if anything.
func (a *app) sayGap(e *json.Encoder, gap gapView) {
	if gap == (gapView{}) {
		return
	}
	if a.output == outJSONL {
		_ = e.Encode(gap)
	}
	a.sayMissed(content.Log{Missed: gap.Missed}, 0)
	if gap.Skipped > 0 {
		a.warn([]string{fmt.Sprintf("%s are not shown here: they were no longer kept", packetsText(gap.Skipped))})
	}
}

// recordLine says a packet in one line.
func (a *app) recordLine(r content.Record) string {
	parts := []string{fmt.Sprintf("%s  %s -> %s  %s", a.clock(r), r.Source, r.Destination, packetKind(r))}
	if r.Protocol == protoTCP {
		parts = append(parts, fmt.Sprintf("seq %d", r.Sequence))
	}
	if r.Payload > 0 {
		parts = append(parts, fmt.Sprintf("%d bytes of data", r.Payload))
	}
	if r.Segment > 0 {
		parts = append(parts, fmt.Sprintf("data segment %d", r.Segment))
	}
	if r.Segments > 1 {
		parts = append(parts, fmt.Sprintf("%d packets on the wire", r.Segments))
	}
	return strings.Join(parts, ", ")
}

// packetKind is the protocol, with the flags of TCP: "tcp syn,ack".
func packetKind(r content.Record) string {
	s := target.ProtocolName(r.Protocol)
	if flags := target.FlagsText(r.Flags, 0); r.Protocol == protoTCP && flags != "" {
		s += " " + flags
	}
	return s
}

// clock is when a packet was chosen, in the user's time.
func (a *app) clock(r content.Record) string {
	return r.Wall.In(a.env.Now().Location()).Format("15:04:05.000000")
}

func number32(n *uint32) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// chosenLines is how many packets are named at the end of a command, and chosenTime how
// long that may take.
const (
	chosenLines = 10
	chosenTime  = 5 * time.Second
)

// sayChosen names the first packets that a fault chose which has just ended, also when
// the command was interrupted. Standard output is the command's: as JSON, packets has it
// all, also that there was none.
func (a *app) sayChosen(ctx context.Context, agent Agent, id string) (known bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), chosenTime)
	defer cancel()
	log, err := chosen(ctx, agent, id)
	if err != nil {
		a.say("netemctl: which packets were chosen is not known: %s", oneLine(err))
		return false
	}
	if log.Chosen == 0 && len(log.Records) == 0 {
		a.warn([]string{"no packet was chosen: the command ran as if there were no fault"})
		return false
	}
	shown := min(len(log.Records), chosenLines)
	for _, r := range log.Records[:shown] {
		a.say("chosen: %s", a.recordLine(r))
	}
	if more := max(log.Chosen, uint64(len(log.Records))) - uint64(shown); more > 0 {
		a.say("and %d more: netemctl packets %s", more, id)
	}
	return true
}
