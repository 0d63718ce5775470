package qdisc

// Percent is a share in percent, 0..100. Its text form always carries the unit
// ("20%"); a bare number is refused, since it may mean a fraction.
type Percent float64

// Rate is a data rate in bytes per second.
type Rate uint64

// Bytes is an amount of data.
type Bytes uint64
