// Reading of an Einsum's equation. No operator is registered here.
#include <algorithm>
#include <cctype>

#include "kernels/einsum.h"

namespace opweave {
namespace OPWEAVE_ISA {
namespace {

// "..." becomes '.'; letters stay.
std::string parse_term(const std::string& text, const std::string& equation) {
    std::string term;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text.compare(i, 3, "...") == 0 && term.find('.') == std::string::npos) {
            term += '.';
            i += 2;
        } else if (std::isalpha(static_cast<unsigned char>(text[i]))) {
            term += text[i];
        } else {
            throw Unsupported("the equation '" + equation + "' cannot be read");
        }
    }
    return term;
}

int letters(const std::string& term) { return static_cast<int>(term.size()) - (term.find('.') != std::string::npos); }

// `wide` dimensions stand under the ellipsis; a term with fewer has the last of them.
Labels expand(const std::string& term, int under, int wide) {
    Labels labels;
    for (char c : term) {
        if (c != '.') labels.push_back(static_cast<unsigned char>(c));
        else
            for (int i = wide - under; i < wide; ++i) labels.push_back(kEllipsis + i);
    }
    return labels;
}

// The ellipsis first, then the letters that occur once, sorted.
std::string implicit_output(const std::vector<std::string>& terms) {
    std::string all, once;
    for (const std::string& t : terms) all += t;
    std::sort(all.begin(), all.end());
    for (char c : all)
        if (c == '.' ? once.empty() : std::count(all.begin(), all.end(), c) == 1) once += c;
    return once;
}

}  // namespace

Equation parse_equation(const std::string& text, size_t operands) {
    std::string left, right;
    std::copy_if(text.begin(), text.end(), std::back_inserter(left), [](char c) { return c != ' '; });
    Equation e;
    const size_t arrow = left.find("->");
    e.explicit_output = arrow != std::string::npos;
    if (e.explicit_output) {
        right = left.substr(arrow + 2);
        left.resize(arrow);
    }
    for (size_t from = 0; from <= left.size();) {
        const size_t to = std::min(left.find(',', from), left.size());
        e.terms.push_back(parse_term(left.substr(from, to - from), text));
        from = to + 1;
    }
    e.output = e.explicit_output ? parse_term(right, text) : implicit_output(e.terms);
    if (e.terms.size() != operands) throw Unsupported("the equation '" + text + "' is not one of " + std::to_string(operands) + " operands");
    std::string known;
    for (const std::string& t : e.terms) known += t;
    for (char c : e.output)
        if (std::count(e.output.begin(), e.output.end(), c) != 1 || (c != '.' && known.find(c) == std::string::npos))
            throw Unsupported("the output of the equation '" + text + "' does not follow from its operands");
    return e;
}

LabelledShapes label(const Equation& equation, const std::vector<Shape>& shapes) {
    LabelledShapes result;
    int wide = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
        const int under = shapes[i].rank - letters(equation.terms[i]);
        if (under < 0 || (under > 0 && equation.terms[i].find('.') == std::string::npos))
            throw BadOperand("operand " + std::to_string(i) + " of shape " + shapes[i].str() + " does not fit the term '" + equation.terms[i] + "'");
        wide = std::max(wide, under);
    }
    result.sizes.assign(static_cast<size_t>(kEllipsis + wide), 1);
    for (size_t i = 0; i < shapes.size(); ++i) {
        result.terms.push_back(expand(equation.terms[i], shapes[i].rank - letters(equation.terms[i]), wide));
        for (int d = 0; d < shapes[i].rank; ++d) {
            int64_t& size = result.sizes[static_cast<size_t>(result.terms[i][static_cast<size_t>(d)])];
            if (size == 1) size = shapes[i][d];
            else if (shapes[i][d] != size && shapes[i][d] != 1)
                throw BadOperand("operand " + std::to_string(i) + " of shape " + shapes[i].str() + " does not fit others in the term '" + equation.terms[i] + "'");
        }
    }
    result.output = expand(equation.output, wide, wide);
    return result;
}

void register_einsum_equation(Registry&) {}

}  // namespace OPWEAVE_ISA
}  // namespace opweave
