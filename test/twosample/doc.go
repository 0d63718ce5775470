// Package twosample says whether two samples can come from one distribution, for the
// tests that compare what two engines did. Its answers are chances: that of two samples
// of one distribution which lie that far apart or further. A Family judges many of them
// at one level.
package twosample
