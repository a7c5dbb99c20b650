// Discrete Fourier transforms of any length, in double precision, over L interleaved signals at a time: every butterfly
// is a vector operation, without shuffles. Lengths of small factors take Stockham's mixed-radix form (no bit reversal),
// the others Bluestein's convolution over a power of two.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace opweave {
namespace OPWEAVE_ISA {

// Sample i of lane l lies at [i * L + l] of both arrays.
struct Signal {
    double *re, *im;
    Signal at(int64_t i) const { return {re + i, im + i}; }
};

class MixedRadix {
  public:
    static constexpr int kLargestFactor = 31;
    // Whether every factor of n is small.
    static bool suits(int64_t n) {
        for (int p = 2; p <= kLargestFactor; ++p)
            while (n % p == 0) n /= p;
        return n == 1;
    }

    explicit MixedRadix(int64_t n) : n_(n), cos_(static_cast<size_t>(n)), sin_(static_cast<size_t>(n)) {
        for (int64_t k = 0; k < n; ++k) {
            const double angle = -2 * M_PI * static_cast<double>(k) / static_cast<double>(n);
            cos_[static_cast<size_t>(k)] = std::cos(angle);
            sin_[static_cast<size_t>(k)] = std::sin(angle);
        }
        for (; n % 4 == 0; n /= 4) factors_.push_back(4);
        for (int p = 2; n > 1; ++p)
            for (; n % p == 0; n /= p) factors_.push_back(p);
    }

    // In place; `work` has the size of `x`. The inverse (not divided by n) is the transform with re and im exchanged.
    template <int L> void run(Signal x, Signal work) const {
        Signal from = x, to = work;
        int64_t length = n_, stride = 1;
        for (int p : factors_) {
            if (p == 4) stage4<L>(from, to, length / 4, stride);
            else if (p == 2) stage2<L>(from, to, length / 2, stride);
            else stage<L>(from, to, p, length / p, stride);
            length /= p;
            stride *= p;
            std::swap(from, to);
        }
        if (from.re == x.re) return;
        std::copy_n(from.re, n_ * L, x.re);
        std::copy_n(from.im, n_ * L, x.im);
    }

  private:
    struct Factor { double re, im; };
    Factor root(int64_t k) const { return {cos_[static_cast<size_t>(k)], sin_[static_cast<size_t>(k)]}; }

    template <int L> void stage2(Signal x, Signal y, int64_t m, int64_t s) const {
        const int64_t row = s * L;
        for (int64_t q = 0; q < m; ++q) {
            const Factor w = root(q * s);
            const Signal a = x.at(row * q), b = x.at(row * (q + m)), u = y.at(row * 2 * q), v = y.at(row * (2 * q + 1));
#pragma GCC ivdep
            for (int64_t j = 0; j < row; ++j) {
                const double re = a.re[j] - b.re[j], im = a.im[j] - b.im[j];
                u.re[j] = a.re[j] + b.re[j];
                u.im[j] = a.im[j] + b.im[j];
                v.re[j] = re * w.re - im * w.im;
                v.im[j] = re * w.im + im * w.re;
            }
        }
    }

    template <int L> void stage4(Signal x, Signal y, int64_t m, int64_t s) const {
        const int64_t row = s * L;
        for (int64_t q = 0; q < m; ++q) {
            const Factor w1 = root(q * s), w2 = root(2 * q * s), w3 = root(3 * q * s);
            const Signal a = x.at(row * q), b = x.at(row * (q + m)), c = x.at(row * (q + 2 * m)), d = x.at(row * (q + 3 * m));
            const Signal y0 = y.at(row * 4 * q), y1 = y0.at(row), y2 = y1.at(row), y3 = y2.at(row);
#pragma GCC ivdep
            for (int64_t j = 0; j < row; ++j) {
                const double acr = a.re[j] + c.re[j], aci = a.im[j] + c.im[j], bdr = b.re[j] + d.re[j], bdi = b.im[j] + d.im[j];
                const double er = a.re[j] - c.re[j], ei = a.im[j] - c.im[j], fr = b.re[j] - d.re[j], fi = b.im[j] - d.im[j];
                const double r1 = er + fi, i1 = ei - fr, r2 = acr - bdr, i2 = aci - bdi, r3 = er - fi, i3 = ei + fr;
                y0.re[j] = acr + bdr;
                y0.im[j] = aci + bdi;
                y1.re[j] = r1 * w1.re - i1 * w1.im;
                y1.im[j] = r1 * w1.im + i1 * w1.re;
                y2.re[j] = r2 * w2.re - i2 * w2.im;
                y2.im[j] = r2 * w2.im + i2 * w2.re;
                y3.re[j] = r3 * w3.re - i3 * w3.im;
                y3.im[j] = r3 * w3.im + i3 * w3.re;
            }
        }
    }

    template <int L> void stage(Signal x, Signal y, int p, int64_t m, int64_t s) const {
        const int64_t row = s * L;
        for (int64_t q = 0; q < m; ++q) {
            for (int k = 0; k < p; ++k) {
                const Signal to = y.at(row * (p * q + k));
                Factor w[kLargestFactor];
                for (int r = 0; r < p; ++r) w[r] = root((q * k * s + r * k % p * (n_ / p)) % n_);
                for (int64_t j = 0; j < row; j += L) {
                    double re[L] = {}, im[L] = {};
                    for (int r = 0; r < p; ++r) {
                        const Signal from = x.at(row * (q + m * r) + j);
                        for (int l = 0; l < L; ++l) {
                            re[l] += from.re[l] * w[r].re - from.im[l] * w[r].im;
                            im[l] += from.re[l] * w[r].im + from.im[l] * w[r].re;
                        }
                    }
                    std::copy_n(re, L, to.re + j);
                    std::copy_n(im, L, to.im + j);
                }
            }
        }
    }

    int64_t n_;
    std::vector<int> factors_;
    std::vector<double> cos_, sin_;  // of exp(-2 pi i k / n)
};

class Fft {
  public:
    explicit Fft(int64_t n) : n_(n), radix_(padded(n)) {
        if (radix_length() != n) make_chirp();
    }

    // Doubles that the signals and the work take together.
    template <int L> size_t buffer() const { return static_cast<size_t>((direct() ? 4 * n_ : 2 * n_ + 4 * radix_length()) * L); }
    template <int L> Signal signal(double* buffer) const { return {buffer, buffer + n_ * L}; }

    // Transforms signal(buffer) in place; the inverse is not divided by n.
    template <int L> void run(double* buffer, bool inverse) const {
        Signal x = signal<L>(buffer);
        if (inverse) std::swap(x.re, x.im);
        double* work = buffer + 2 * n_ * L;
        if (direct()) return radix_.template run<L>(x, {work, work + n_ * L});
        const int64_t m = radix_length() * L;
        convolve<L>(x, {work, work + m}, {work + 2 * m, work + 3 * m});
    }

  private:
    static int64_t padded(int64_t n) {
        if (MixedRadix::suits(n)) return n;
        int64_t m = 1;
        while (m < 2 * n - 1) m *= 2;
        return m;
    }
    int64_t radix_length() const { return padded(n_); }
    bool direct() const { return chirp_re_.empty(); }

    void make_chirp() {
        const int64_t m = radix_length();
        chirp_re_.resize(static_cast<size_t>(n_));
        chirp_im_.resize(static_cast<size_t>(n_));
        kernel_re_.resize(static_cast<size_t>(m));
        kernel_im_.resize(static_cast<size_t>(m));
        int64_t square = 0;  // k * k mod 2n
        for (int64_t k = 0; k < n_; ++k) {
            const double angle = -M_PI * static_cast<double>(square) / static_cast<double>(n_);
            const size_t i = static_cast<size_t>(k), mirror = static_cast<size_t>((m - k) % m);
            chirp_re_[i] = std::cos(angle);
            chirp_im_[i] = std::sin(angle);
            kernel_re_[i] = kernel_re_[mirror] = chirp_re_[i] / static_cast<double>(m);
            kernel_im_[i] = kernel_im_[mirror] = -chirp_im_[i] / static_cast<double>(m);
            square = (square + 2 * k + 1) % (2 * n_);
        }
        std::vector<double> work(2 * static_cast<size_t>(m));
        radix_.template run<1>({kernel_re_.data(), kernel_im_.data()}, {work.data(), work.data() + m});
    }

    template <int L> void convolve(Signal x, Signal a, Signal work) const {
        const int64_t m = radix_length();
        multiply<L>(x, chirp_re_, chirp_im_, a, n_);
        std::fill(a.re + n_ * L, a.re + m * L, 0.0);
        std::fill(a.im + n_ * L, a.im + m * L, 0.0);
        radix_.template run<L>(a, work);
        multiply<L>(a, kernel_re_, kernel_im_, a, m);
        radix_.template run<L>({a.im, a.re}, {work.im, work.re});
        multiply<L>(a, chirp_re_, chirp_im_, x, n_);
    }

    template <int L>
    static void multiply(Signal x, const std::vector<double>& re, const std::vector<double>& im, Signal to, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
            const double wr = re[static_cast<size_t>(i)], wi = im[static_cast<size_t>(i)];
            for (int64_t j = i * L; j < (i + 1) * L; ++j) {
                const double r = x.re[j] * wr - x.im[j] * wi, s = x.re[j] * wi + x.im[j] * wr;
                to.re[j] = r;
                to.im[j] = s;
            }
        }
    }

    int64_t n_;
    MixedRadix radix_;
    std::vector<double> chirp_re_, chirp_im_, kernel_re_, kernel_im_;  // empty where n has small factors only
};

}  // namespace OPWEAVE_ISA
}  // namespace opweave
